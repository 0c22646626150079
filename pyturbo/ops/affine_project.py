"""Several products of one token's input in one launch, for weights in the MLX "affine" format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._projections import Projection, Projections, check_weights
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    changeable,
    empty,
    operand,
    resolve,
    result,
    write_back,
)
from pyturbo.ops.affine import Weight, matrix

#: The widths of weights; scales are float16 or bfloat16.
PROJECTION_BITS = (4, 8)


def affine_project(
    x: ArrayLike, weights: Sequence[Weight], bias: ArrayLike | None = None, *, device: DeviceLike = None
) -> tuple[Array, ...]:
    """Multiply x [1, in] with up to four transposed weights [out, in] of one format -> [1, out] of each.

    A bias [all outs] in float32 is added: the values for the first weight, then those for the next ones.
    """
    projections = _Projections("affine_project", x, weights, bias)
    return projections.run(resolve(device))


def affine_conv_project(
    x: ArrayLike,
    weights: Sequence[Weight],
    history: ArrayLike,
    taps: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> tuple[tuple[Array, ...], Array]:
    """Apply `affine_project`, then `conv1d` to the result of the first weight -> results, history.

    history [3, out] is changed in place; taps [out, 4] have the type of the scales.
    """
    op = "affine_conv_project"
    projections = _Projections(op, x, weights, bias)
    device = resolve(device)
    channels = projections.weights[0].out_dim
    given = changeable(device, op, "history", history)
    rows = operand(op, "history", given, np.float32, (3, channels))
    kernel = operand(op, "taps", taps, projections.dtype, (channels, 4))
    return projections.run(device, conv=(rows, kernel)), write_back(given, rows)


def affine_norm_project(
    x: ArrayLike,
    residual: ArrayLike,
    norm_weight: ArrayLike,
    eps: float,
    weights: Sequence[Weight],
    bias: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Apply `rms_norm` to x + residual [1, in], then `affine_project` -> normalised, sum, results.

    norm_weight [in] has the type of the scales.
    """
    op = "affine_norm_project"
    projections = _Projections(op, x, weights, bias)
    added = operand(op, "residual", residual, np.float32, projections.x.shape)
    scale = operand(op, "norm_weight", norm_weight, projections.dtype, projections.x.shape[1:])
    device = resolve(device)
    h, total = empty(device, projections.x.shape), empty(device, projections.x.shape)
    results = projections.run(device, norm=(added, scale, h, total), eps=eps)
    return result(h), result(total), results


class _Projections(Projections):
    """Weights in the affine format.

    Attributes:
        dtype: Of the scales.
    """

    def __init__(self, op: str, x: ArrayLike, weights: Sequence[Weight], bias: ArrayLike | None) -> None:
        check_weights(op, weights, "packed", "scales", "biases", "bits", "group_size")
        matrices = [matrix(op, f"weights[{i}]", weight, axes=2) for i, weight in enumerate(weights)]
        parts = [Projection(w.arrays, w.in_dim, w.out_dim, (w.group_size, w.suffix)) for w in matrices]
        super().__init__(op, x, parts, bias)
        first = matrices[0]
        self.dtype: Any = first.scales.dtype
        self._suffix, self._group_size = first.suffix, first.group_size
        if weights[0][3] not in PROJECTION_BITS or self.dtype.itemsize != 2:
            raise ArgumentError(
                f"{op}: weights: expected 4 or 8 bits, and scales of 16, got {first.suffix[1:]}"
            )

    def run(
        self,
        device: Target,
        norm: tuple[Any, ...] = (None,) * 4,
        conv: tuple[Any, ...] = (None,) * 2,
        eps: float = 0.0,
    ) -> tuple[Array, ...]:
        return self.launch(
            device,
            f"affine_project{self._suffix}",
            before=norm,
            between=(*conv, self.bias),
            after=(self._group_size, eps),
            has_norm=norm[0] is not None,
            has_conv=conv[0] is not None,
            adds_bias=self.bias is not None,
        )
