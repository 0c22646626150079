"""Linear algebra on weights in the MLX formats of small floats: ``w = code * scale``.

A matrix [out, in] is stored as packed uint32 [out, in * bits / 32], the codes of a row one after another, and
scales uint8 [out, in / group], one for each group of a row. The mode gives the types of codes and scales:
"mxfp4" (E2M1 in groups of 32, E8M0), "mxfp8" (E4M3 in groups of 32, E8M0) or "nvfp4" (E2M1 in groups of 16,
E4M3). An nvfp4 matrix may have a float32 global scale: its values are multiplied with global_scale / 2688.
Activations are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._ids import expert_operands, known_ids
from pyturbo.ops._products import Kernels, activations, bucket_bounds, kernel_for
from pyturbo.ops._run import Array, DeviceLike, empty, launch, operand, resolve, result
from pyturbo.ops._stacks import experts_of, spaced_by, stack_memory, stack_stride
from pyturbo.ops.fp_format import FP_FORMATS, check_global_scale, check_mode, fp_dequantize, fp_quantize

__all__ = [
    "FP_FORMATS",
    "fp_dequantize",
    "fp_embed",
    "fp_experts_matmul",
    "fp_grouped_matmul",
    "fp_matmul",
    "fp_quantize",
]

_PRODUCT = Kernels("fp_matvec", "fp_few_matmul", "fp_matmul")

#: (packed, scales, mode, global_scale)
Weight = tuple[Array, Array, str, Array | None]


class Matrix(NamedTuple):
    packed: Array
    scales: Array
    global_scale: Array | None  # [1], or of each matrix of a stack
    in_dim: int

    @property
    def arrays(self) -> tuple[Array, Array, Array | None]:
        """The arrays as kernels take them."""
        whole = None if self.global_scale is None else stack_memory(self.global_scale)
        return stack_memory(self.packed), stack_memory(self.scales), whole

    @property
    def constants(self) -> dict[str, bool]:
        return {"has_global_scale": self.global_scale is not None}

    @property
    def out_dim(self) -> int:
        return int(self.packed.shape[-2])

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one matrix of a stack to the next, in each array."""
        whole = 1 if self.global_scale is None else stack_stride(self.global_scale)
        return stack_stride(self.packed), stack_stride(self.scales), whole


def fp_matmul(
    x: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array:
    """Multiply x [tokens, in] with the transposed weight [out, in] -> [tokens, out]."""
    op = "fp_matmul"
    w = matrix(op, packed, scales, mode, global_scale, axes=2)
    x = activations(op, x, w.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, w.out_dim))
    kernel = kernel_for(_PRODUCT, device, tokens)
    args = x, *w.arrays, y, tokens, w.in_dim, w.out_dim
    launch(device, f"{kernel}_{mode}", *args, constants=w.constants)
    return result(y)


def fp_embed(
    ids: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None = None,
    *,
    device: DeviceLike = None,
) -> Array:
    """Return the rows ids [tokens] of a quantised table [vocab, hidden] -> [tokens, hidden]."""
    op = "fp_embed"
    table = matrix(op, packed, scales, mode, global_scale, axes=2)
    chosen = known_ids(op, ids, table.out_dim, axes=1)
    device = resolve(device)
    y = empty(device, (chosen.shape[0], table.in_dim))
    args = chosen, *table.arrays, y, chosen.shape[0], table.out_dim, table.in_dim
    launch(device, f"{op}_{mode}", *args, constants=table.constants)
    return result(y)


def fp_experts_matmul(
    x: ArrayLike,
    ids: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None = None,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply each token with its experts ids [tokens, k] of weights [experts, out, in] -> [tokens, k, out].

    x is [tokens, in], one row for all experts of a token, or [tokens, k, in], one row for each expert. A
    global scale is [experts]. `slots` and strides as for `affine_experts_matmul`.
    """
    op = "fp_experts_matmul"
    w = matrix(op, packed, scales, mode, global_scale, axes=3, stack=True)
    experts = experts_of(op, slots, w.packed.shape[0])
    x, chosen, sizes = expert_operands(op, x, ids, experts.count, w.in_dim)
    device = resolve(device)
    y = empty(device, (*chosen.shape, w.out_dim))
    args = x, chosen, *w.arrays, experts.slots, y, *sizes, w.out_dim, *experts.sizes, *w.strides
    launch(device, f"fp_experts_matvec_{mode}", *args, constants={**experts.constants, **w.constants})
    return result(y)


def fp_grouped_matmul(
    x: ArrayLike,
    offsets: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None = None,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply rows that are sorted by expert: x [rows, in], weights [experts, out, in] -> [rows, out].

    offsets [experts + 1]: expert e has the rows offsets[e] .. offsets[e + 1]. A global scale is [experts].
    `slots` and strides as for `affine_experts_matmul`.
    """
    op = "fp_grouped_matmul"
    w = matrix(op, packed, scales, mode, global_scale, axes=3, stack=True)
    x = activations(op, x, w.in_dim)
    rows = x.shape[0]
    experts = experts_of(op, slots, w.packed.shape[0])
    bounds = bucket_bounds(op, offsets, experts.count, rows)
    device = resolve(device)
    y = empty(device, (rows, w.out_dim))
    args = x, bounds, *w.arrays, experts.slots, y, rows, w.in_dim, w.out_dim, *experts.sizes, *w.strides
    launch(device, f"{op}_{mode}", *args, constants={**experts.constants, **w.constants})
    return result(y)


def matrix(
    op: str,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None,
    axes: int,
    stack: bool = False,
) -> Matrix:
    """Check a weight of `axes` axes."""
    bits, group = check_mode(op, mode)
    words = operand(op, "packed", packed, np.uint32, (None,) * axes, stack=stack)
    if words.size == 0 or words.shape[-1] % bits:
        raise ArgumentError(
            f"{op}: packed: expected rows of {bits}-bit codes in units of 32, got shape {list(words.shape)}"
        )
    if stack:
        words = spaced_by(words, 4)
    in_dim = words.shape[-1] * 32 // bits
    groups = operand(op, "scales", scales, np.uint8, (*words.shape[:-1], in_dim // group), stack=stack)
    count = words.shape[0] if axes == 3 else 1
    return Matrix(words, groups, check_global_scale(op, mode, global_scale, count), in_dim)
