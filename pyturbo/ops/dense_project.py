"""Several products of one token's input in one launch, for weights that are not quantised."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import stored_weight
from pyturbo.ops._projections import Projection, Projections, check_count
from pyturbo.ops._run import Array, DeviceLike, resolve

_UNIT = 32  # values


def dense_project(
    x: ArrayLike, weights: Sequence[ArrayLike], bias: ArrayLike | None = None, *, device: DeviceLike = None
) -> tuple[Array, ...]:
    """Multiply x [1, in] with up to four transposed weights [out, in] of one type -> [1, out] of each.

    The type is one of those of `matmul`, and in a multiple of 32. A bias [all outs] in float32 is added: the
    values for the first weight, then those for the next ones.
    """
    op = "dense_project"
    check_count(op, weights)
    stored = [stored_weight(op, w, (None, None), f"weights[{i}]") for i, w in enumerate(weights)]
    parts = [Projection((w,), w.shape[1], w.shape[0], kind) for w, kind in stored]
    projections = Projections(op, x, parts, bias)
    if projections.in_dim == 0 or projections.in_dim % _UNIT:
        raise ArgumentError(f"{op}: weights: expected rows in units of {_UNIT}, got {projections.in_dim}")
    device, given = resolve(device), projections.bias
    kernel = f"{op}_{stored[0][1]}"
    return projections.launch(device, kernel, between=(given,), adds_bias=given is not None)
