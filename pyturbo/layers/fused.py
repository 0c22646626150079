"""Launches that are joined: which they are, and what is recorded where they are not.

A kernel that joins others saves their launches, and the waits between them. Devices whose traits say so use
them for steps of one token:

- Layers that read one input are one launch for each of their formats, up to four of them: `affine_project`
  with 4 or 8 bits and scales of 16, `gguf_project` with Q8_0, Q4_K, Q5_K and Q6_K, `dense_project` with rows
  of a multiple of 32, `fp_project` with small floats that have no global scale. Biases are added in all but
  the last, even that of a single layer.
- With `affine_project` goes the residual addition and norm before it, if the norm's weight has the type of
  the scales, and the convolution after the first layer, if its taps have.

Elsewhere are gate, up and SwiGLU, which every device joins (`Linear.apply_swiglu`), the residual addition
with the norm that follows (`stream.py`), norms, rotation and append of heads (`head_inputs.py`), and the
delta rule with what is around it (`delta_net.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats import Affine, Dense, Fp, Gguf, Linear
from pyturbo.layers.stream import Norm, Stream, Sum
from pyturbo.recording import fuses


def joins(x: Any) -> bool:
    """Tell whether launches with x [tokens, ...] are joined."""
    return isinstance(x.shape[0], int) and x.shape[0] == 1 and fuses()


class Joined:
    """Layers that read one input."""

    def __init__(self, *layers: Linear) -> None:
        self.layers = layers

    def project(self, x: Any) -> list[Any]:
        """Apply the layers to x [tokens, in]."""
        if not joins(x):
            return [layer.apply(x) for layer in self.layers]
        return _ordered(_projected(self._groups, x))

    def conv_project(self, x: Any, history: Any, taps: Array) -> list[Any]:
        """Apply the layers to x, then the convolution to the result of the first."""
        first, *others = self._groups
        if joins(x) and first.dtype == taps.dtype:
            parts, _ = ops.affine_conv_project(x, first.weights, history, taps, first.bias)
            return _ordered(dict(zip(first.layers, parts)) | _projected(others, x))
        mixed, *rest = self.project(x)
        return [ops.conv1d(mixed, history, taps)[0], *rest]

    def norm_project(self, stream: Stream, norm: Norm) -> tuple[Any, Any, list[Any]]:
        """Normalise the stream, and apply the layers -> normalised, stream, results."""
        first, *others = self._groups
        if isinstance(stream, Sum) and joins(stream.added) and first.dtype == norm.weight.dtype:
            operands = stream.added, stream.residual, norm.weight, norm.eps, first.weights, first.bias
            h, x, parts = ops.affine_norm_project(*operands)
            return h, x, _ordered(dict(zip(first.layers, parts)) | _projected(others, h))
        h, x = stream.normed(norm)
        return h, x, self.project(h)

    @cached_property
    def _groups(self) -> list[_Group]:
        """The layers by format, as many as a launch may apply; the first one is in the first group."""
        groups: dict[Any, _Group] = {}
        counts: Counter[Any] = Counter()
        for i, layer in enumerate(self.layers):
            form, operation = _kernel(layer)
            key = i if operation is None else (form, counts[form] // ops.MAX_PROJECTIONS)
            counts[form] += 1
            groups.setdefault(key, _Group({}, operation)).layers[i] = layer
        return list(groups.values())


@dataclass(frozen=True, eq=False)
class _Group:
    """Layers that one launch may apply, by number."""

    layers: dict[int, Any]
    operation: Callable[..., Any] | None  # None: no kernel applies several layers of that format

    @property
    def weights(self) -> list[Any]:
        return [layer.weight for layer in self.layers.values()]

    @property
    def dtype(self) -> Any:
        """The type of the scales where the kernel takes a norm and a convolution, else None."""
        layer = next(iter(self.layers.values()))
        return layer.scales.dtype if self.operation is ops.affine_project else None

    @cached_property
    def bias(self) -> Array | None:
        """The biases of all layers as float32, or None where they have none."""
        biases = [layer.bias for layer in self.layers.values()]
        return None if biases[0] is None else np.concatenate(biases).astype(np.float32)

    def project(self, x: Any) -> Sequence[Any]:
        if self.operation is None or (len(self.layers) == 1 and self.bias is None):
            return [layer.apply(x) for layer in self.layers.values()]
        results: Sequence[Any]
        if self.bias is None:
            results = self.operation(x, self.weights)
        else:
            results = self.operation(x, self.weights, self.bias)
        return results


def _kernel(layer: Linear) -> tuple[Hashable, Callable[..., Any] | None]:
    """Return what layers of one launch have in common, and the operation, if a kernel applies several."""
    biased = layer.bias is not None
    if isinstance(layer, Affine) and layer.bits in ops.PROJECTION_BITS and layer.scales.dtype.itemsize == 2:
        return (layer.bits, layer.group_size, layer.scales.dtype, biased), ops.affine_project
    if isinstance(layer, Gguf) and layer.kind in ops.PROJECTION_KINDS:
        return (layer.kind, biased), ops.gguf_project
    if isinstance(layer, Dense) and layer.shape[-1] % 32 == 0:
        return (layer.weight.dtype, biased), ops.dense_project
    if isinstance(layer, Fp) and layer.global_scale is None and not biased:
        return layer.mode, ops.fp_project
    return None, None


def _projected(groups: Sequence[_Group], x: Any) -> dict[int, Any]:
    """Return the results of layers by their numbers."""
    return {i: y for group in groups for i, y in zip(group.layers, group.project(x))}


def _ordered(results: dict[int, Any]) -> list[Any]:
    return [results[i] for i in sorted(results)]
