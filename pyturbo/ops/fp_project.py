"""Several products of one token's input in one launch, for weights in the MLX formats of small floats."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._projections import Projection, Projections, check_weights
from pyturbo.ops._run import Array, DeviceLike, resolve
from pyturbo.ops.fp import Weight, matrix


def fp_project(x: ArrayLike, weights: Sequence[Weight], *, device: DeviceLike = None) -> tuple[Array, ...]:
    """Multiply x [1, in] with up to four transposed weights [out, in] of one mode -> [1, out] of each.

    A weight is (packed, scales, mode, None): those with a global scale have no such kernel.
    """
    op = "fp_project"
    check_weights(op, weights, "packed", "scales", "mode", "global_scale")
    matrices = [matrix(op, *weight, axes=2, name=f"weights[{i}]") for i, weight in enumerate(weights)]
    if any(w.global_scale is not None for w in matrices):
        raise ArgumentError(f"{op}: weights: expected no global scales")
    parts = [Projection(w.arrays[:2], w.in_dim, w.out_dim, w.mode) for w in matrices]
    return Projections(op, x, parts).launch(resolve(device), f"{op}_{matrices[0].mode}")
