"""Products with weights that are not quantised."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pyturbo.ops._checks import stored_weight, values
from pyturbo.ops._ids import expert_operands
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve


def matmul(x: ArrayLike, w: ArrayLike, *, device: DeviceLike = None) -> Array:
    """``x @ w.T``: x [tokens, in] float32, w [out, in] float32, float16 or bfloat16 -> [tokens, out] float32.

    The bits of one row of the result do not depend on how many tokens are computed with it.
    """
    x = values("matmul", "x", x, axes=2)
    tokens, inputs = x.shape
    w, kind = stored_weight("matmul", w, (None, inputs))
    outputs = w.shape[0]
    device = resolve(device)
    y = empty(device, (tokens, outputs))
    launch(device, f"matmul_{kind}", x, w, y, tokens, outputs, inputs)
    return y.numpy()


def dense_experts_matmul(x: ArrayLike, ids: ArrayLike, w: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Each token times its own experts: w [experts, out, in], ids [tokens, k] -> [tokens, k, out].

    x is [tokens, in], shared by a token's experts, or [tokens, k, in], a row for each; w as for matmul.
    """
    op = "dense_experts_matmul"
    w, kind = stored_weight(op, w, (None, None, None))
    experts, outputs, inputs = w.shape
    x, chosen, sizes = expert_operands(op, x, ids, experts, inputs)
    device = resolve(device)
    y = empty(device, (*chosen.shape, outputs))
    launch(device, f"experts_matvec_{kind}", x, chosen, w, y, *sizes, outputs, experts)
    return y.numpy()
