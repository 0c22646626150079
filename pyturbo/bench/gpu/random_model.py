"""Models without a checkpoint: of random weights made in memory, or of blank ones.

Layers of a random model have equal values but memory of their own, so that a step reads as many bytes as that
of a real model. A blank model is not meant to run: it shows its launches, their estimates and its bytes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyturbo._buffer import host_empty, host_map
from pyturbo._device import Device
from pyturbo.bench.peers import random_moe
from pyturbo.bench.peers.random_moe import Maker, Shape
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.origin import Origin
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.engine.runner import Runner
from pyturbo.formats.affine import Affine
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.kv_cache import kv_format
from pyturbo.models import qwen3_5_moe

Array = NDArray[Any]

_NAME = "random qwen3_5_moe"
_GATES = (".mlp.gate", ".mlp.shared_expert_gate")  # have 8 bits, all others 4
#: The values of tensors by the ends of their names; those of all others, norms, are 1.
_RANGES = {"conv1d.weight": (-1.0, 1.0), "A_log": (-1.0, 2.7), "dt_bias": (-6.0, -1.0)}


def random_runner(device: Device, shape: Shape, kv: str, tell: Callable[[str], None]) -> Runner:
    """Return a network of that shape on a device."""
    with closing(RandomWeights(device, shape, tell)) as weights:
        return runner_of(device, random_moe.config(shape), weights, kv)


def runner_of(
    device: Device,
    config: dict[str, Any],
    weights: RandomWeights | BlankWeights,
    kv: str,
    build: Callable[[Entries, Weights], Decoder] = qwen3_5_moe.build,
) -> Runner:
    """Return the network of an architecture with these weights on a device."""
    source = _Source(config)
    network = build(Entries.of(source), cast(Weights, weights))
    return Runner(network, device, kv_format(kv), Origin(source))


class _Source(Tensors):
    """Stands for the files of a checkpoint, of which there are none."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(Path(_NAME), {})
        self.config = config.get("text_config", {}) | config
        self.config.pop("text_config", None)

    def stated_fingerprint(self) -> str:
        return _NAME


class _Weights:
    """Has what architectures ask of `Weights`.

    Attributes:
        nbytes: Of all matrices.
    """

    nbytes = 0

    def __contains__(self, name: str) -> bool:
        return not name.endswith(("linear_attn.A", ".bias"))

    def linear(self, path: str, shape: tuple[int, ...], bias: bool | None = None) -> Affine:
        """Return a matrix, or a stack of them."""
        bits = 8 if path.endswith(_GATES) else 4
        arrays = self._arrays(path, shape, bits)
        self.nbytes += sum(array.nbytes for array in arrays)
        packed, scales, biases = arrays
        return Affine(packed, scales, biases, bits, random_moe.GROUP_SIZE)

    def experts(self, path: str, shape: tuple[int, ...], bias: bool = False) -> Affine:
        """Return a stack of experts."""
        return self.linear(path, shape)

    def served(self, path: str) -> None:
        """Return that all experts are in memory."""

    def _arrays(self, path: str, shape: tuple[int, ...], bits: int) -> list[Array]:
        """Return packed values, scales and biases."""
        raise NotImplementedError


class BlankWeights(_Weights):
    """Matrices of equal sizes are the same pages, which nobody touches."""

    def __init__(self) -> None:
        self._made: dict[Any, list[Array]] = {}

    def tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a tensor that is not quantised."""
        return np.ones(shape, np.float32 if name.endswith("A_log") else ml_dtypes.bfloat16)

    def _arrays(self, path: str, shape: tuple[int, ...], bits: int) -> list[Array]:
        *rows, width = shape
        groups = width // random_moe.GROUP_SIZE
        if (shape, bits) not in self._made:
            parts = (
                (width * bits // 32, np.uint32),
                (groups, ml_dtypes.bfloat16),
                (groups, ml_dtypes.bfloat16),
            )
            self._made[shape, bits] = [host_empty((*rows, size), dtype).numpy() for size, dtype in parts]
        return self._made[shape, bits]


class RandomWeights(_Weights):
    """Values of about 1 / sqrt(in)."""

    def __init__(self, device: Device, shape: Shape, tell: Callable[[str], None]) -> None:
        self._make = Maker(
            max(shape.experts * shape.expert_inner, shape.vocab) * shape.hidden // 2, centered=True
        )
        self._rng = np.random.default_rng(0)
        self._copies = _Copies(device)
        self._layers, self._tell = shape.layers, tell
        self._layer = ""

    def close(self) -> None:
        """Close files; arrays stay valid."""
        self._copies.close()

    def tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a tensor that is not quantised."""
        low, high = next((bounds for ends, bounds in _RANGES.items() if name.endswith(ends)), (1.0, 1.0))
        dtype = np.float32 if name.endswith("A_log") else ml_dtypes.bfloat16
        return self._rng.uniform(low, high, shape).astype(dtype)

    def _arrays(self, path: str, shape: tuple[int, ...], bits: int) -> list[Array]:
        self._show(path)
        return self._copies.of((path.rpartition(".")[2], shape), lambda: self._made(shape, bits))

    def _made(self, shape: tuple[int, ...], bits: int) -> list[Array]:
        self._make.linear("", *shape, bits=bits)
        made = self._make.take()
        return [made[f".{part}"] for part in ("weight", "scales", "biases")]

    def _show(self, path: str) -> None:
        """Tell which layer is being made."""
        parts = path.split(".")
        layer = parts[2] if parts[1:2] == ["layers"] else ""
        if layer and layer != self._layer:
            self._layer = layer
            self._tell(f"weights of layer {int(layer) + 1} of {self._layers}")


class _Copies:
    """Arrays of equal values, each of which has memory of its own on a device.

    A device that uses host memory in place gets as many copies. One with memory of its own copies whatever
    has another address: there an array is one more mapping of a file in memory, which takes nothing.
    """

    def __init__(self, device: Device) -> None:
        self._copy = _copied if device.traits.host_memory != "none" else _mapped
        self._made: dict[Any, list[_Original]] = {}

    def close(self) -> None:
        for originals in self._made.values():
            for original in originals:
                original.close()

    def of(self, key: Any, make: Callable[[], list[Array]]) -> list[Array]:
        """Return copies of the arrays called `key`, which `make` makes once."""
        if key not in self._made:
            self._made[key] = [_Original(array) for array in make()]
        return [self._copy(original) for original in self._made[key]]


class _Original:
    """An array, and once it is needed a file with its bytes."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._file: BinaryIO | None = None

    def file(self) -> BinaryIO:
        """Return a file without a name, in memory where the system has such files."""
        if self._file is None:
            self._file = _unnamed_file()
            self._file.write(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data)
            self._file.flush()
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _unnamed_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(_NAME), "w+b")
    return cast(BinaryIO, tempfile.TemporaryFile())


def _copied(original: _Original) -> Array:
    copy = host_empty(original.array.shape, original.array.dtype).numpy()
    copy[...] = original.array
    return copy


def _mapped(original: _Original) -> Array:
    mapped = host_map(original.file().fileno(), _NAME)
    return mapped.view(original.array.shape, original.array.dtype).numpy()
