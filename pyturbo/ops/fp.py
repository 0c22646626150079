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
from pyturbo.ops._products import Kernels, activations, bucket_bounds, kernel_for, row_teams
from pyturbo.ops._run import Array, DeviceLike, aligned, empty, launch, operand, resolve, result
from pyturbo.ops._stacks import experts_of, spaced_by, stack_memory, stack_stride
from pyturbo.ops.fp_format import FP_FORMATS, check_global_scale, check_mode, fp_dequantize, fp_quantize

__all__ = [
    "FP_FORMATS",
    "fp_dequantize",
    "fp_embed",
    "fp_experts_matmul",
    "fp_experts_swiglu",
    "fp_grouped_matmul",
    "fp_grouped_swiglu",
    "fp_matmul",
    "fp_quantize",
    "fp_swiglu",
]

_PRODUCT = Kernels("fp_matvec", "fp_few_matmul", "fp_matmul")
_SWIGLU = Kernels("fp_swiglu", "fp_few_swiglu", "fp_swiglu_matmul")

#: Values that a lane of the kernels for one vector multiplies at once.
SPAN = 16

#: (packed, scales, mode, global_scale)
Weight = tuple[Array, Array, str, Array | None]


class Matrix(NamedTuple):
    packed: Array
    scales: Array
    global_scale: Array | None  # [1], or of each matrix of a stack
    in_dim: int
    mode: str

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

    @property
    def form(self) -> str:
        """Shape and format in words."""
        whole = "" if self.global_scale is None else " with a global scale"
        return f"{list(self.packed.shape)} as {self.mode}{whole}"

    def contiguous(self) -> Matrix:
        """Return a stack without space between its matrices."""
        whole = None if self.global_scale is None else aligned(self.global_scale)
        return self._replace(packed=aligned(self.packed), scales=aligned(self.scales), global_scale=whole)


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
    teams = row_teams(device, w.out_dim, w.in_dim, SPAN) if kernel == _PRODUCT.one else {}
    launch(device, f"{kernel}_{mode}", *args, constants={**w.constants, **teams})
    return result(y)


def fp_swiglu(x: ArrayLike, gate: Weight, up: Weight, *, device: DeviceLike = None) -> Array:
    """Return ``silu(x gate^T) * (x up^T)``: x [tokens, in] -> [tokens, out].

    Both weights have one mode, and both a global scale or neither.
    """
    op = "fp_swiglu"
    g, u = _pair(op, gate, up, axes=2)
    x = activations(op, x, g.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, g.out_dim))
    kernel = kernel_for(_SWIGLU, device, tokens)
    args = x, *g.arrays, *u.arrays, y, tokens, g.in_dim, g.out_dim
    launch(device, f"{kernel}_{g.mode}", *args, constants=g.constants)
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
    teams = row_teams(device, chosen.shape[1] * w.out_dim, w.in_dim, SPAN)
    constants = {**experts.constants, **w.constants, **teams}
    launch(device, f"fp_experts_matvec_{mode}", *args, constants=constants)
    return result(y)


def fp_experts_swiglu(
    x: ArrayLike,
    ids: ArrayLike,
    gate: Weight,
    up: Weight,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of each token's experts e = ids [tokens, k] -> [tokens, k, out].

    Weights as for `fp_grouped_swiglu`; x and `slots` as for `fp_experts_matmul`.
    """
    op = "fp_experts_swiglu"
    g, u = _stacks(op, gate, up)
    experts = experts_of(op, slots, g.packed.shape[0])
    x, chosen, sizes = expert_operands(op, x, ids, experts.count, g.in_dim)
    device = resolve(device)
    y = empty(device, (*chosen.shape, g.out_dim))
    strides = *experts.sizes, *g.strides
    args = x, chosen, *g.arrays, *u.arrays, experts.slots, y, *sizes, g.out_dim, *strides
    launch(device, f"{op}_{g.mode}", *args, constants={**experts.constants, **g.constants})
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


def fp_grouped_swiglu(
    x: ArrayLike,
    offsets: ArrayLike,
    gate: Weight,
    up: Weight,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of rows that are sorted by expert: x [rows, in] -> [rows, out].

    Both weights have one mode, and both a global scale or neither. They are stacks [experts, out, in], which
    are copied unless both have the same strides; the rest as for `fp_grouped_matmul`.
    """
    op = "fp_grouped_swiglu"
    g, u = _stacks(op, gate, up)
    x = activations(op, x, g.in_dim)
    rows = x.shape[0]
    experts = experts_of(op, slots, g.packed.shape[0])
    bounds = bucket_bounds(op, offsets, experts.count, rows)
    device = resolve(device)
    y = empty(device, (rows, g.out_dim))
    sizes = rows, g.in_dim, g.out_dim, *experts.sizes, *g.strides
    args = x, bounds, *g.arrays, *u.arrays, experts.slots, y, *sizes
    launch(device, f"{op}_{g.mode}", *args, constants={**experts.constants, **g.constants})
    return result(y)


def matrix(
    op: str,
    packed: ArrayLike,
    scales: ArrayLike,
    mode: str,
    global_scale: ArrayLike | None,
    axes: int,
    stack: bool = False,
    name: str = "",
) -> Matrix:
    """Check a weight of `axes` axes; messages say `name` where an operation has two weights."""
    bits, group = check_mode(op, mode)
    prefix = f"{name} " if name else ""
    words = operand(op, f"{prefix}packed", packed, np.uint32, (None,) * axes, stack=stack)
    if words.size == 0 or words.shape[-1] % bits:
        raise ArgumentError(
            f"{op}: {prefix}packed: expected rows of {bits}-bit codes in units of 32, "
            f"got shape {list(words.shape)}"
        )
    if stack:
        words = spaced_by(words, 4)
    in_dim = words.shape[-1] * 32 // bits
    shape = *words.shape[:-1], in_dim // group
    groups = operand(op, f"{prefix}scales", scales, np.uint8, shape, stack=stack)
    count = words.shape[0] if axes == 3 else 1
    whole = check_global_scale(op, mode, global_scale, count, f"{prefix}global_scale")
    return Matrix(words, groups, whole, in_dim, mode)


def _pair(op: str, gate: Weight, up: Weight, axes: int, stack: bool = False) -> tuple[Matrix, Matrix]:
    """Check two weights that one kernel reads together."""
    for name, weight in (("gate", gate), ("up", up)):
        if not isinstance(weight, (tuple, list)) or len(weight) != 4:
            got = f"{len(weight)} items" if isinstance(weight, (tuple, list)) else type(weight).__name__
            raise ArgumentError(f"{op}: {name}: expected (packed, scales, mode, global_scale), got {got}")
    g, u = (matrix(op, *w, axes, stack, name) for name, w in (("gate", gate), ("up", up)))
    if g.form != u.form:
        raise ArgumentError(f"{op}: up: expected the format of gate, {g.form}, got {u.form}")
    return g, u


def _stacks(op: str, gate: Weight, up: Weight) -> tuple[Matrix, Matrix]:
    """Check two stacks that one kernel reads together; they are copied unless they have the same strides."""
    g, u = _pair(op, gate, up, axes=3, stack=True)
    return (g, u) if g.strides == u.strides else (g.contiguous(), u.contiguous())
