"""Several products of one token's input in one launch, for weights in the MLX "affine" format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    changeable,
    empty,
    launch,
    operand,
    resolve,
    result,
    write_back,
)
from pyturbo.ops.affine import Weight, matrix

#: The most weights of one launch, and their widths; scales are float16 or bfloat16.
MAX_PROJECTIONS = 4
PROJECTION_BITS = (4, 8)


def affine_project(
    x: ArrayLike, weights: Sequence[Weight], *, device: DeviceLike = None
) -> tuple[Array, ...]:
    """Multiply x [1, in] with up to four transposed weights [out, in] of one format -> [1, out] of each."""
    op = "affine_project"
    projections = _Projections(op, x, weights)
    return projections.launch(resolve(device))


def affine_conv_project(
    x: ArrayLike,
    weights: Sequence[Weight],
    history: ArrayLike,
    taps: ArrayLike,
    *,
    device: DeviceLike = None,
) -> tuple[tuple[Array, ...], Array]:
    """Apply `affine_project`, then `conv1d` to the result of the first weight -> results, history.

    history [3, out] is changed in place; taps [out, 4] have the type of the scales.
    """
    op = "affine_conv_project"
    projections = _Projections(op, x, weights)
    device = resolve(device)
    channels = projections.matrices[0].out_dim
    given = changeable(device, op, "history", history)
    rows = operand(op, "history", given, np.float32, (3, channels))
    kernel = operand(op, "taps", taps, projections.dtype, (channels, 4))
    return projections.launch(device, conv=(rows, kernel)), write_back(given, rows)


def affine_norm_project(
    x: ArrayLike,
    residual: ArrayLike,
    norm_weight: ArrayLike,
    eps: float,
    weights: Sequence[Weight],
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Apply `rms_norm` to x + residual [1, in], then `affine_project` -> normalised, sum, results.

    norm_weight [in] has the type of the scales.
    """
    op = "affine_norm_project"
    projections = _Projections(op, x, weights)
    added = operand(op, "residual", residual, np.float32, projections.x.shape)
    scale = operand(op, "norm_weight", norm_weight, projections.dtype, projections.x.shape[1:])
    device = resolve(device)
    h, total = empty(device, projections.x.shape), empty(device, projections.x.shape)
    results = projections.launch(device, norm=(added, scale, h, total), eps=eps)
    return result(h), result(total), results


class _Projections:
    """An input and weights of one format."""

    def __init__(self, op: str, x: ArrayLike, weights: Sequence[Weight]) -> None:
        if not isinstance(weights, (tuple, list)) or not 1 <= len(weights) <= MAX_PROJECTIONS:
            got = f"{len(weights)} of them" if isinstance(weights, (tuple, list)) else type(weights).__name__
            raise ArgumentError(f"{op}: weights: expected 1 to {MAX_PROJECTIONS} weights, got {got}")
        self.matrices = [matrix(op, f"weights[{i}]", weight, axes=2) for i, weight in enumerate(weights)]
        formats = {(w.in_dim, w.group_size, w.suffix) for w in self.matrices}
        if len(formats) > 1:
            raise ArgumentError(f"{op}: weights: expected one format, got {len(formats)}")
        if weights[0][3] not in PROJECTION_BITS or self.dtype.itemsize != 2:
            suffix = self.matrices[0].suffix[1:]
            raise ArgumentError(f"{op}: weights: expected 4 or 8 bits, and scales of 16, got {suffix}")
        self.x = operand(op, "x", x, np.float32, (1, self.matrices[0].in_dim))

    @property
    def dtype(self) -> Any:
        """The type of the scales."""
        return self.matrices[0].scales.dtype

    def launch(
        self,
        device: Target,
        norm: tuple[Any, ...] = (None,) * 4,
        conv: tuple[Any, ...] = (None,) * 2,
        eps: float = 0.0,
    ) -> tuple[Array, ...]:
        first, count = self.matrices[0], len(self.matrices)
        absent = MAX_PROJECTIONS - count
        results = [empty(device, (1, w.out_dim)) for w in self.matrices]
        arrays = [array for w, y in zip(self.matrices, results) for array in (*w.arrays, y)]
        outs = [w.out_dim for w in self.matrices] + [0] * absent
        constants = {f"has_{name}": i < count for i, name in enumerate("bcd", start=1)}
        constants |= {"has_norm": norm[0] is not None, "has_conv": conv[0] is not None}
        args = (
            self.x,
            *norm,
            *arrays,
            *(None,) * (4 * absent),
            *conv,
            first.in_dim,
            *outs,
            first.group_size,
            eps,
        )
        launch(device, f"affine_project{first.suffix}", *args, constants=constants)
        return tuple(result(y) for y in results)
