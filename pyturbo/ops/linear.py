"""Products with weights that are not quantised."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pyturbo.ops._checks import stored_weight, values
from pyturbo.ops._ids import expert_operands
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve, result
from pyturbo.ops._stacks import experts_of, stack_memory, stack_stride


def matmul(x: ArrayLike, w: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``x @ w.T``: float32 x [tokens, in], w [out, in] float32, float16 or bfloat16 -> [tokens, out].

    The bits of one row of the result do not depend on the number of tokens.
    """
    x = values("matmul", "x", x, axes=2)
    tokens, inputs = x.shape
    w, kind = stored_weight("matmul", w, (None, inputs), "w")
    outputs = w.shape[0]
    device = resolve(device)
    y = empty(device, (tokens, outputs))
    launch(device, f"matmul_{kind}", x, w, y, tokens, outputs, inputs)
    return result(y)


def dense_experts_matmul(
    x: ArrayLike,
    ids: ArrayLike,
    w: ArrayLike,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply each token with its own experts, ids [tokens, k] of w [experts, out, in] -> [tokens, k, out].

    x is [tokens, in], one row for all experts of a token, or [tokens, k, in], one row for each expert; w has
    the types of `matmul`. `slots` as for `affine_experts_matmul`.
    """
    op = "dense_experts_matmul"
    w, kind = stored_weight(op, w, (None, None, None), "w", stack=True)
    matrices, outputs, inputs = w.shape
    experts = experts_of(op, slots, matrices)
    x, chosen, sizes = expert_operands(op, x, ids, experts.count, inputs)
    device = resolve(device)
    y = empty(device, (*chosen.shape, outputs))
    args = x, chosen, stack_memory(w), experts.slots, y, *sizes, outputs, *experts.sizes, stack_stride(w)
    launch(device, f"dense_experts_matvec_{kind}", *args, constants=experts.constants)
    return result(y)
