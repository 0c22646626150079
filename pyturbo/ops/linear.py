"""Products with weights that are not quantised."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import stored_weight, values
from pyturbo.ops._ids import expert_operands
from pyturbo.ops._products import Kernels, activations, bucket_bounds, kernel_for, row_teams
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve, result
from pyturbo.ops._stacks import experts_of, spaced_by, stack_memory, stack_stride

_UNIT = 32  # values that all kernels but the matrix-vector ones have in rows
_TILED_OUTPUTS = 128  # of a tile, which fewer would leave idle


def matmul(x: ArrayLike, w: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return ``x @ w.T``: float32 x [tokens, in], w [out, in] float32, float16 or bfloat16 -> [tokens, out].

    The bits of one row of the result depend on the number of tokens only where that chooses the kernel.
    """
    x = values("matmul", "x", x, axes=2)
    tokens, inputs = x.shape
    w, kind = stored_weight("matmul", w, (None, inputs), "w")
    outputs = w.shape[0]
    device = resolve(device)
    y = empty(device, (tokens, outputs))
    kernels = _kernels(kind, inputs, outputs)
    kernel = kernel_for(kernels, device, tokens)
    constants = row_teams(device, outputs, inputs, span_of(w)) if kernel == kernels.one else {}
    launch(device, f"{kernel}_{kind}", x, w, y, tokens, outputs, inputs, constants=constants)
    return result(y)


def span_of(w: Array) -> int:
    """Return the values that a lane of the kernels for one vector multiplies at once."""
    return 16 // w.dtype.itemsize


def _kernels(kind: str, inputs: int, outputs: int) -> Kernels:
    one = "dense_matvec"
    if inputs % _UNIT:
        return Kernels(one, one, one)
    return Kernels(
        one,
        few=one if kind == "f32" else "dense_few_matmul",
        many=one if outputs < _TILED_OUTPUTS else "dense_matmul",
    )


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
    constants = {**experts.constants, **row_teams(device, chosen.shape[1] * outputs, inputs, span_of(w))}
    launch(device, f"dense_experts_matvec_{kind}", *args, constants=constants)
    return result(y)


def dense_grouped_matmul(
    x: ArrayLike,
    offsets: ArrayLike,
    w: ArrayLike,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply rows that are sorted by expert: x [rows, in], w [experts, out, in] -> [rows, out].

    offsets [experts + 1]: expert e has the rows offsets[e] .. offsets[e + 1]. w is float16 or bfloat16, in
    rows of a multiple of 32 values. `slots` and strides as for `affine_experts_matmul`.
    """
    op = "dense_grouped_matmul"
    w, kind = stored_weight(op, w, (None, None, None), "w", stack=True)
    matrices, outputs, inputs = w.shape
    if kind == "f32" or inputs % _UNIT:
        wanted = f"16-bit values in rows of a multiple of {_UNIT}"
        raise ArgumentError(f"{op}: w: expected {wanted}, got {w.dtype} of shape {list(w.shape)}")
    w = spaced_by(w, 8)
    x = activations(op, x, inputs)
    rows = x.shape[0]
    experts = experts_of(op, slots, matrices)
    bounds = bucket_bounds(op, offsets, experts.count, rows)
    device = resolve(device)
    y = empty(device, (rows, outputs))
    sizes = rows, inputs, outputs, *experts.sizes, stack_stride(w)
    args = x, bounds, stack_memory(w), experts.slots, y, *sizes
    launch(device, f"{op}_{kind}", *args, constants=experts.constants)
    return result(y)
