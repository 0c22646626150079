"""Launches that are joined: which they are, and what is recorded where they are not.

A kernel that joins others saves their launches, and the waits between them. Devices whose traits say so use
them for steps of one token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.formats import Linear
from pyturbo.formats.affine import Affine
from pyturbo.layers.stream import Norm, Stream, Sum
from pyturbo.recording import fuses


def joins(x: Any) -> bool:
    """Tell whether launches with x [tokens, ...] are joined."""
    return isinstance(x.shape[0], int) and x.shape[0] == 1 and fuses()


def project(layers: Sequence[Linear], x: Any) -> list[Any]:
    """Apply several layers to x [tokens, in]; those of one format are one launch."""
    return _ordered(_projected(_groups(layers) if joins(x) else _singles(layers), x))


def conv_project(layers: Sequence[Linear], x: Any, history: Any, taps: Array) -> list[Any]:
    """Apply several layers to x, then the convolution to the result of the first."""
    first, *others = _groups(layers)
    if joins(x) and first.dtype == taps.dtype:
        parts, _ = ops.affine_conv_project(x, first.weights, history, taps)
        return _ordered(dict(zip(first.layers, parts)) | _projected(others, x))
    mixed, *rest = project(layers, x)
    return [ops.conv1d(mixed, history, taps)[0], *rest]


def norm_project(stream: Stream, norm: Norm, layers: Sequence[Linear]) -> tuple[Any, Any, list[Any]]:
    """Normalise the stream, and apply several layers -> normalised, stream, results."""
    first, *others = _groups(layers)
    if isinstance(stream, Sum) and joins(stream.added) and first.dtype == norm.weight.dtype:
        operands = stream.added, stream.residual, norm.weight, norm.eps, first.weights
        h, x, parts = ops.affine_norm_project(*operands)
        return h, x, _ordered(dict(zip(first.layers, parts)) | _projected(others, h))
    h, x = stream.normed(norm)
    return h, x, project(layers, h)


class _Group(NamedTuple):
    """Layers that one launch may apply, by number."""

    layers: dict[int, Linear]
    dtype: Any  # of the scales; None if no kernel applies several layers of that format

    @property
    def weights(self) -> list[Any]:
        return [layer.weight for layer in self.layers.values() if isinstance(layer, Affine)]


def _groups(layers: Sequence[Linear]) -> list[_Group]:
    """Sort layers by format, as many as a launch may apply; the first one is in the first group."""
    groups: dict[Any, _Group] = {}
    counts: Counter[Any] = Counter()
    for i, layer in enumerate(layers):
        key: Any = i
        dtype = None
        if isinstance(layer, Affine) and _has_kernel(layer):
            form, dtype = (layer.bits, layer.group_size, layer.scales.dtype), layer.scales.dtype
            key = form, counts[form] // ops.MAX_PROJECTIONS
            counts[form] += 1
        groups.setdefault(key, _Group({}, dtype)).layers[i] = layer
    return list(groups.values())


def _has_kernel(layer: Affine) -> bool:
    return layer.bits in ops.PROJECTION_BITS and layer.scales.dtype.itemsize == 2 and layer.bias is None


def _singles(layers: Sequence[Linear]) -> list[_Group]:
    return [_Group({i: layer}, None) for i, layer in enumerate(layers)]


def _projected(groups: Sequence[_Group], x: Any) -> dict[int, Any]:
    """Return the results of layers by their numbers."""
    results: dict[int, Any] = {}
    for group in groups:
        if len(group.layers) == 1:
            results |= {i: layer.apply(x) for i, layer in group.layers.items()}
        else:
            results |= zip(group.layers, ops.affine_project(x, group.weights))
    return results


def _ordered(results: dict[int, Any]) -> list[Any]:
    return [results[i] for i in sorted(results)]
