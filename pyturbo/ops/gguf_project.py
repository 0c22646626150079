"""Several products of one token's input in one launch, for weights in blocks of GGUF files."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._projections import Projection, Projections, check_weights
from pyturbo.ops._run import Array, DeviceLike, resolve
from pyturbo.ops.gguf import Weight, matrix

#: The types of weights.
PROJECTION_KINDS = ("Q8_0", "Q4_K", "Q5_K", "Q6_K")


def gguf_project(
    x: ArrayLike, weights: Sequence[Weight], bias: ArrayLike | None = None, *, device: DeviceLike = None
) -> tuple[Array, ...]:
    """Multiply x [1, in] with up to four transposed weights [out, in] of one type -> [1, out] of each.

    A weight is (blocks, kind). A bias [all outs] in float32 is added: the values for the first weight, then
    those for the next ones.
    """
    op = "gguf_project"
    check_weights(op, weights, "blocks", "kind")
    matrices = [matrix(op, f"weights[{i}]", *weight, axes=2) for i, weight in enumerate(weights)]
    parts = [Projection((w.memory,), w.in_dim, w.out_dim, w.suffix) for w in matrices]
    projections = Projections(op, x, parts, bias)
    if weights[0][1] not in PROJECTION_KINDS:
        raise ArgumentError(
            f"{op}: weights: expected one of {', '.join(PROJECTION_KINDS)}, got {weights[0][1]}"
        )
    device, given = resolve(device), projections.bias
    kernel = "gguf_project" + matrices[0].suffix
    return projections.launch(device, kernel, between=(given,), adds_bias=given is not None)
