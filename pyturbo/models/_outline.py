"""A network without values: what it asks of a checkpoint, by name and shape."""

from __future__ import annotations

import numpy as np

from pyturbo.checkpoint import Dense, Weights
from pyturbo.checkpoint.file import Array
from pyturbo.checkpoint.weights import Shape


class Outline:
    """Takes the place of Weights when a network is built, and remembers what was asked for.

    What it gives has a shape and takes no memory, so that networks of any size can be looked at.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.tensors: dict[str, Shape] = {}  # by name
        self.linears: dict[str, Shape] = {}  # by path
        self.stacks: dict[str, Shape] = {}  # of experts, by path

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def tensor(self, name: str, shape: Shape) -> Array:
        self.tensors[name] = shape
        return _nothing(shape)

    def linear(self, path: str, shape: Shape, bias: bool | None = None) -> Dense:
        if path == "lm_head" and self.weights.tied:
            path = "model.embed_tokens"
        self.linears[path] = shape
        if bias or (bias is None and f"{path}.bias" in self.weights):
            return _Shaped(_nothing(shape), self.tensor(f"{path}.bias", shape[:1]))
        return _Shaped(_nothing(shape))

    def experts(self, path: str, shape: Shape, bias: bool = False) -> Dense:
        self.stacks[path] = shape
        return _Shaped(_nothing(shape), self.tensor(f"{path}.bias", shape[:2]) if bias else None)

    @property
    def matrices(self) -> dict[str, Shape]:
        return self.linears | self.stacks


class _Shaped(Dense):
    def rows(self, index: Array) -> Dense:
        return _Shaped(_nothing((*self.shape[:-2], len(index), self.shape[-1])))


def _nothing(shape: Shape) -> Array:
    return np.broadcast_to(np.float32(0), shape)
