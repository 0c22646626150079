"""A network without values: what it asks of a checkpoint, by name and shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo._blank import Blank
from pyturbo.checkpoint.weights import Shape, Weights
from pyturbo.formats import Linear


class Outline:
    """Takes the place of Weights when a network is built, and remembers what was asked for.

    Its arrays take no memory, so that networks of any size can be looked at. They are checked as if they were
    loaded, and each knows the name it was asked for by.
    """

    def __init__(self, weights: Weights) -> None:
        """`weights` are without values."""
        self.weights = weights
        self.tensors: dict[str, Shape] = {}  # by name
        self.linears: dict[str, Shape] = {}  # by path
        self.stacks: dict[str, Shape] = {}  # of experts, by path

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def tensor(self, name: str, shape: Shape) -> Array:
        self.tensors[name] = shape
        return _named(name, self.weights.tensor(name, shape))

    def linear(self, path: str, shape: Shape, bias: bool | None = None) -> Linear:
        layer = self.weights.linear(path, shape, bias)
        path = "model.embed_tokens" if path == "lm_head" and self.weights.tied else path
        self.linears[path] = shape
        return self._layer(path, layer)

    def experts(self, path: str, shape: Shape, bias: bool = False) -> Linear:
        self.stacks[path] = shape
        return self._layer(path, self.weights.experts(path, shape, bias))

    def in_passing(self) -> AbstractContextManager[None]:
        return self.weights.in_passing()

    @property
    def matrices(self) -> dict[str, Shape]:
        return self.linears | self.stacks

    def _layer(self, path: str, layer: Linear) -> Linear:
        for array in layer.arrays:
            _named(path, array)
        if layer.bias is not None:
            self.tensors[f"{path}.bias"] = layer.bias.shape
            _named(f"{path}.bias", layer.bias)
        return layer


def arrays(part: Any, seen: set[int] | None = None) -> Iterator[Array]:
    """All arrays of a network, each once: its weights and what was computed from its configuration."""
    seen = set() if seen is None else seen
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, np.ndarray):
        yield part
        return
    inner = part if isinstance(part, (list, tuple)) else getattr(part, "__dict__", {}).values()
    for one in inner:
        yield from arrays(one, seen)


def _named(path: str, array: Array) -> Array:
    if isinstance(array, Blank):
        array.path = path
    return array
