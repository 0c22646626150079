"""Linear algebra on weights in the MLX "affine" format: ``w = q * scale + bias`` per group of the last axis.

A matrix [out, in] is stored as packed uint32 [out, in * bits / 32], a little-endian bit stream per row, with
scales and biases [out, in / group_size] in float32, float16 or bfloat16. Activations are float32.

A stack of experts [experts, out, in] may have any stride from one matrix to the next: it is used in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo._dtypes import SUFFIXES
from pyturbo.errors import ArgumentError
from pyturbo.ops._ids import expert_operands, known_ids
from pyturbo.ops._products import Kernels, activations, bucket_bounds, kernel_for, row_teams
from pyturbo.ops._run import Array, DeviceLike, aligned, as_array, empty, launch, operand, resolve, result
from pyturbo.ops._stacks import Experts, experts_of, spaced_by, stack_memory, stack_stride
from pyturbo.ops.affine_format import affine_dequantize, affine_quantize, check_format

__all__ = [
    "affine_dequantize",
    "affine_embed",
    "affine_experts_matmul",
    "affine_experts_swiglu",
    "affine_grouped_matmul",
    "affine_grouped_swiglu",
    "affine_matmul",
    "affine_quantize",
    "affine_swiglu",
]

_PRODUCT = Kernels("affine_matvec", "affine_few_matmul", "affine_matmul")
_SWIGLU = Kernels("affine_swiglu", "affine_few_swiglu", "affine_swiglu_matmul")

#: (packed, scales, biases, bits, group_size)
Weight = tuple[Array, Array, Array, int, int]


class _Matrix(NamedTuple):
    packed: Array
    scales: Array
    biases: Array
    group_size: int
    in_dim: int
    suffix: str  # of the kernel names

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """The arrays as kernels take them."""
        return stack_memory(self.packed), stack_memory(self.scales), stack_memory(self.biases)

    @property
    def out_dim(self) -> int:
        return int(self.packed.shape[-2])

    @property
    def span(self) -> int:
        """Values that a lane of the kernels for one vector multiplies at once."""
        bits = self.packed.shape[-1] * 32 // self.in_dim
        return 32 if bits % 2 else 16

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one matrix of a stack to the next, in each array."""
        return stack_stride(self.packed), stack_stride(self.scales), stack_stride(self.biases)

    def contiguous(self) -> _Matrix:
        """Return a stack without space between its matrices."""
        packed, scales, biases = aligned(self.packed), aligned(self.scales), aligned(self.biases)
        return self._replace(packed=packed, scales=scales, biases=biases)


def affine_matmul(
    x: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike,
    bits: int,
    group_size: int,
    *,
    device: DeviceLike = None,
) -> Array:
    """Multiply x [tokens, in] with the transposed weight [out, in] -> [tokens, out]."""
    op = "affine_matmul"
    w = matrix(op, "", (packed, scales, biases, bits, group_size), axes=2)
    x = activations(op, x, w.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, w.out_dim))
    kernel = kernel_for(_PRODUCT, device, tokens)
    constants = row_teams(device, w.out_dim, w.in_dim, w.span) if kernel == _PRODUCT.one else {}
    sizes = tokens, w.in_dim, w.out_dim, w.group_size
    launch(device, kernel + w.suffix, x, *w.arrays, y, *sizes, constants=constants)
    return result(y)


def affine_swiglu(x: ArrayLike, gate: Weight, up: Weight, *, device: DeviceLike = None) -> Array:
    """Return ``silu(x gate^T) * (x up^T)``: x [tokens, in] -> [tokens, out]. Both weights have one format."""
    op = "affine_swiglu"
    g, u = _pair(op, gate, up, axes=2)
    x = activations(op, x, g.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, g.out_dim))
    kernel = kernel_for(_SWIGLU, device, tokens)
    launch(device, kernel + g.suffix, x, *g.arrays, *u.arrays, y, tokens, g.in_dim, g.out_dim, g.group_size)
    return result(y)


def affine_embed(
    ids: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike,
    bits: int,
    group_size: int,
    *,
    device: DeviceLike = None,
) -> Array:
    """Return the rows ids [tokens] of a quantised table [vocab, hidden] -> [tokens, hidden]."""
    op = "affine_embed"
    table = matrix(op, "", (packed, scales, biases, bits, group_size), axes=2)
    chosen = known_ids(op, ids, table.out_dim, axes=1)
    device = resolve(device)
    y = empty(device, (chosen.shape[0], table.in_dim))
    sizes = chosen.shape[0], table.out_dim, table.in_dim, table.group_size
    launch(device, op + table.suffix, chosen, *table.arrays, y, *sizes)
    return result(y)


def affine_experts_matmul(
    x: ArrayLike,
    ids: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike,
    bits: int,
    group_size: int,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply each token with its experts ids [tokens, k] of weights [experts, out, in] -> [tokens, k, out].

    x is [tokens, in], one row for all experts of a token, or [tokens, k, in], one row for each expert.

    With int32 `slots` [experts], expert e has matrix slots[e] of weights [matrices, out, in]. The rows of an
    expert whose slot is negative are not written: they are zeros, or where the operation is recorded, what
    was there before. Those of a slot that the weights do not have are NaN.
    """
    op = "affine_experts_matmul"
    w = matrix(op, "", (packed, scales, biases, bits, group_size), axes=3, stack=True)
    x, chosen, experts, sizes = _expert_operands(op, x, ids, w, slots)
    device = resolve(device)
    y = empty(device, (*chosen.shape, w.out_dim))
    args = x, chosen, *w.arrays, experts.slots, y, *sizes
    constants = {**experts.constants, **row_teams(device, chosen.shape[1] * w.out_dim, w.in_dim, w.span)}
    launch(device, "affine_experts_matvec" + w.suffix, *args, constants=constants)
    return result(y)


def affine_experts_swiglu(
    x: ArrayLike,
    ids: ArrayLike,
    gate: Weight,
    up: Weight,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of each token's experts e = ids [tokens, k] -> [tokens, k, out].

    The weights are stacks [experts, out, in], which are copied unless both have the same strides; x and
    `slots` as for `affine_experts_matmul`.
    """
    op = "affine_experts_swiglu"
    g, u = _stacks(op, gate, up)
    x, chosen, experts, sizes = _expert_operands(op, x, ids, g, slots)
    device = resolve(device)
    y = empty(device, (*chosen.shape, g.out_dim))
    args = x, chosen, *g.arrays, *u.arrays, experts.slots, y, *sizes
    launch(device, op + g.suffix, *args, constants=experts.constants)
    return result(y)


def affine_grouped_matmul(
    x: ArrayLike,
    offsets: ArrayLike,
    packed: ArrayLike,
    scales: ArrayLike,
    biases: ArrayLike,
    bits: int,
    group_size: int,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply rows that are sorted by expert: x [rows, in], weights [experts, out, in] -> [rows, out].

    offsets [experts + 1]: expert e has the rows offsets[e] .. offsets[e + 1]. `slots` as for
    `affine_experts_matmul`.
    """
    op = "affine_grouped_matmul"
    w = matrix(op, "", (packed, scales, biases, bits, group_size), axes=3, stack=True)
    x, bounds, experts, sizes = _bucket_operands(op, x, offsets, w, slots)
    device = resolve(device)
    y = empty(device, (x.shape[0], w.out_dim))
    launch(device, op + w.suffix, x, bounds, *w.arrays, experts.slots, y, *sizes, constants=experts.constants)
    return result(y)


def affine_grouped_swiglu(
    x: ArrayLike,
    offsets: ArrayLike,
    gate: Weight,
    up: Weight,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of rows that are sorted by expert: x [rows, in] -> [rows, out].

    Weights as for `affine_experts_swiglu`; the rest as for `affine_grouped_matmul`.
    """
    op = "affine_grouped_swiglu"
    g, u = _stacks(op, gate, up)
    x, bounds, experts, sizes = _bucket_operands(op, x, offsets, g, slots)
    device = resolve(device)
    y = empty(device, (x.shape[0], g.out_dim))
    args = x, bounds, *g.arrays, *u.arrays, experts.slots, y, *sizes
    launch(device, op + g.suffix, *args, constants=experts.constants)
    return result(y)


def matrix(op: str, name: str, weight: Any, axes: int, stack: bool = False) -> _Matrix:
    """Check a weight of `axes` axes; messages say `name` where an operation has two weights."""
    if not isinstance(weight, (tuple, list)) or len(weight) != 5:
        got = f"{len(weight)} items" if isinstance(weight, (tuple, list)) else type(weight).__name__
        raise ArgumentError(f"{op}: {name}: expected (packed, scales, biases, bits, group_size), got {got}")
    packed, scales, biases, bits, group_size = weight
    bits, group_size = check_format(op, bits, group_size)
    prefix = f"{name} " if name else ""
    packed = operand(op, f"{prefix}packed", packed, np.uint32, (None,) * axes, stack=stack)
    words = packed.shape[-1]
    in_dim = words * 32 // bits
    if packed.size == 0 or words % bits or in_dim % group_size:
        raise ArgumentError(
            f"{op}: {prefix}packed: expected rows of {bits}-bit values in whole groups of {group_size}, "
            f"got shape {list(packed.shape)}"
        )
    if stack and bits % 4 == 0:
        packed = spaced_by(packed, 4)
    scales = as_array(op, f"{prefix}scales", scales)
    dtype = scales.dtype
    if dtype not in SUFFIXES:
        raise ArgumentError(f"{op}: {prefix}scales: expected float32, float16 or bfloat16, got {dtype}")
    groups = (*packed.shape[:-1], in_dim // group_size)
    scales = operand(op, f"{prefix}scales", scales, dtype, groups, stack=stack)
    biases = operand(op, f"{prefix}biases", biases, dtype, groups, stack=stack)
    return _Matrix(packed, scales, biases, group_size, in_dim, f"_b{bits}_{SUFFIXES[dtype]}")


def _pair(op: str, gate: Weight, up: Weight, axes: int, stack: bool = False) -> tuple[_Matrix, _Matrix]:
    """Check two weights that one kernel reads together."""
    g, u = matrix(op, "gate", gate, axes, stack), matrix(op, "up", up, axes, stack)
    if (g.packed.shape, g.group_size, g.suffix) != (u.packed.shape, u.group_size, u.suffix):
        raise ArgumentError(
            f"{op}: up: expected the format of gate, {list(g.packed.shape)} in groups of {g.group_size} as "
            f"{g.suffix[1:]}, got {list(u.packed.shape)} in groups of {u.group_size} as {u.suffix[1:]}"
        )
    return g, u


def _stacks(op: str, gate: Weight, up: Weight) -> tuple[_Matrix, _Matrix]:
    """Check two stacks that one kernel reads together; they are copied unless they have the same strides."""
    g, u = _pair(op, gate, up, axes=3, stack=True)
    return (g, u) if g.strides == u.strides else (g.contiguous(), u.contiguous())


def _expert_operands(
    op: str, x: ArrayLike, ids: ArrayLike, w: _Matrix, slots: ArrayLike | None
) -> tuple[Array, Array, Experts, tuple[int, ...]]:
    """Return x, ids, the experts and the sizes that end the arguments of the expert kernels."""
    experts = experts_of(op, slots, w.packed.shape[0])
    rows, chosen, sizes = expert_operands(op, x, ids, experts.count, w.in_dim)
    return rows, chosen, experts, (*sizes, w.out_dim, w.group_size, *experts.sizes, *w.strides)


def _bucket_operands(
    op: str, x: ArrayLike, offsets: ArrayLike, w: _Matrix, slots: ArrayLike | None
) -> tuple[Array, Array, Experts, tuple[int, ...]]:
    """Return x, the bounds, the experts and the sizes that end the arguments of the grouped kernels."""
    rows = activations(op, x, w.in_dim)
    experts = experts_of(op, slots, w.packed.shape[0])
    bounds = bucket_bounds(op, offsets, experts.count, rows.shape[0])
    sizes = rows.shape[0], w.in_dim, w.out_dim, w.group_size, *experts.sizes, *w.strides
    return rows, bounds, experts, sizes
