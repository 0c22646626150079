"""Linear algebra on weights in blocks of GGUF files: ``w = code * scale``, in some types ``+ bias``.

A matrix [out, in] is stored as uint8 [out, in / values * bytes], where a block of the type has so many values
and bytes (`GGUF_TYPES`). A type has its name in GGML, such as "Q4_K". Activations are float32.
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
from pyturbo.ops.gguf_format import GGUF_TYPES, check_type

__all__ = [
    "GGUF_TYPES",
    "gguf_embed",
    "gguf_experts_matmul",
    "gguf_experts_swiglu",
    "gguf_grouped_matmul",
    "gguf_grouped_swiglu",
    "gguf_matmul",
    "gguf_swiglu",
]

_PRODUCT = Kernels("gguf_matvec", "gguf_few_matmul", "gguf_matmul")
_SWIGLU = Kernels("gguf_swiglu", "gguf_few_swiglu", "gguf_swiglu_matmul")

#: Values that a lane of the kernels for one vector multiplies at once.
SPAN = 32

#: (blocks, kind)
Weight = tuple[Array, str]


class Matrix(NamedTuple):
    blocks: Array
    in_dim: int
    suffix: str  # of the kernel names

    @property
    def memory(self) -> Array:
        """The blocks as kernels take them."""
        return stack_memory(self.blocks)

    @property
    def out_dim(self) -> int:
        return int(self.blocks.shape[-2])

    @property
    def stride(self) -> int:
        """Bytes from one matrix of a stack to the next."""
        return stack_stride(self.blocks)


def gguf_matmul(x: ArrayLike, blocks: ArrayLike, kind: str, *, device: DeviceLike = None) -> Array:
    """Multiply x [tokens, in] with the transposed weight [out, in] -> [tokens, out]."""
    op = "gguf_matmul"
    w = matrix(op, "blocks", blocks, kind, axes=2)
    x = activations(op, x, w.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, w.out_dim))
    kernel = kernel_for(_PRODUCT, device, tokens)
    constants = row_teams(device, w.out_dim, w.in_dim, SPAN) if kernel == _PRODUCT.one else {}
    launch(device, kernel + w.suffix, x, w.memory, y, tokens, w.in_dim, w.out_dim, constants=constants)
    return result(y)


def gguf_swiglu(
    x: ArrayLike, gate: ArrayLike, up: ArrayLike, kind: str, *, device: DeviceLike = None
) -> Array:
    """Return ``silu(x gate^T) * (x up^T)``: x [tokens, in] -> [tokens, out]. Both weights have one type."""
    op = "gguf_swiglu"
    g, u = _pair(op, gate, up, kind, axes=2)
    x = activations(op, x, g.in_dim)
    device = resolve(device)
    tokens = x.shape[0]
    y = empty(device, (tokens, g.out_dim))
    kernel = kernel_for(_SWIGLU, device, tokens)
    launch(device, kernel + g.suffix, x, g.memory, u.memory, y, tokens, g.in_dim, g.out_dim)
    return result(y)


def gguf_embed(ids: ArrayLike, blocks: ArrayLike, kind: str, *, device: DeviceLike = None) -> Array:
    """Return the rows ids [tokens] of a quantised table [vocab, hidden] -> [tokens, hidden]."""
    op = "gguf_embed"
    table = matrix(op, "blocks", blocks, kind, axes=2)
    chosen = known_ids(op, ids, table.out_dim, axes=1)
    device = resolve(device)
    y = empty(device, (chosen.shape[0], table.in_dim))
    sizes = chosen.shape[0], table.out_dim, table.in_dim
    launch(device, op + table.suffix, chosen, table.memory, y, *sizes)
    return result(y)


def gguf_experts_matmul(
    x: ArrayLike,
    ids: ArrayLike,
    blocks: ArrayLike,
    kind: str,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply each token with its experts ids [tokens, k] of weights [experts, out, in] -> [tokens, k, out].

    x is [tokens, in], one row for all experts of a token, or [tokens, k, in], one row for each expert.
    `slots` and strides as for `affine_experts_matmul`.
    """
    op = "gguf_experts_matmul"
    w = matrix(op, "blocks", blocks, kind, axes=3)
    experts = experts_of(op, slots, w.blocks.shape[0])
    x, chosen, sizes = expert_operands(op, x, ids, experts.count, w.in_dim)
    device = resolve(device)
    y = empty(device, (*chosen.shape, w.out_dim))
    args = x, chosen, w.memory, experts.slots, y, *sizes, w.out_dim, *experts.sizes, w.stride
    constants = {**experts.constants, **row_teams(device, chosen.shape[1] * w.out_dim, w.in_dim, SPAN)}
    launch(device, "gguf_experts_matvec" + w.suffix, *args, constants=constants)
    return result(y)


def gguf_experts_swiglu(
    x: ArrayLike,
    ids: ArrayLike,
    gate: ArrayLike,
    up: ArrayLike,
    kind: str,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of each token's experts e = ids [tokens, k] -> [tokens, k, out].

    The weights are stacks [experts, out, in], which are copied unless both have the same stride; x and
    `slots` as for `gguf_experts_matmul`.
    """
    op = "gguf_experts_swiglu"
    g, u = _stacks(op, gate, up, kind)
    experts = experts_of(op, slots, g.blocks.shape[0])
    x, chosen, sizes = expert_operands(op, x, ids, experts.count, g.in_dim)
    device = resolve(device)
    y = empty(device, (*chosen.shape, g.out_dim))
    args = x, chosen, g.memory, u.memory, experts.slots, y, *sizes, g.out_dim, *experts.sizes, g.stride
    launch(device, op + g.suffix, *args, constants=experts.constants)
    return result(y)


def gguf_grouped_matmul(
    x: ArrayLike,
    offsets: ArrayLike,
    blocks: ArrayLike,
    kind: str,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Multiply rows that are sorted by expert: x [rows, in], weights [experts, out, in] -> [rows, out].

    offsets [experts + 1]: expert e has the rows offsets[e] .. offsets[e + 1]. `slots` and strides as for
    `affine_experts_matmul`.
    """
    op = "gguf_grouped_matmul"
    w = matrix(op, "blocks", blocks, kind, axes=3)
    x = activations(op, x, w.in_dim)
    rows = x.shape[0]
    experts = experts_of(op, slots, w.blocks.shape[0])
    bounds = bucket_bounds(op, offsets, experts.count, rows)
    device = resolve(device)
    y = empty(device, (rows, w.out_dim))
    args = x, bounds, w.memory, experts.slots, y, rows, w.in_dim, w.out_dim, *experts.sizes, w.stride
    launch(device, op + w.suffix, *args, constants=experts.constants)
    return result(y)


def gguf_grouped_swiglu(
    x: ArrayLike,
    offsets: ArrayLike,
    gate: ArrayLike,
    up: ArrayLike,
    kind: str,
    *,
    slots: ArrayLike | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return ``silu(gate_e x) * (up_e x)`` of rows that are sorted by expert: x [rows, in] -> [rows, out].

    Weights as for `gguf_experts_swiglu`; the rest as for `gguf_grouped_matmul`.
    """
    op = "gguf_grouped_swiglu"
    g, u = _stacks(op, gate, up, kind)
    x = activations(op, x, g.in_dim)
    rows = x.shape[0]
    experts = experts_of(op, slots, g.blocks.shape[0])
    bounds = bucket_bounds(op, offsets, experts.count, rows)
    device = resolve(device)
    y = empty(device, (rows, g.out_dim))
    sizes = rows, g.in_dim, g.out_dim, *experts.sizes, g.stride
    args = x, bounds, g.memory, u.memory, experts.slots, y, *sizes
    launch(device, op + g.suffix, *args, constants=experts.constants)
    return result(y)


def matrix(op: str, name: str, blocks: ArrayLike, kind: str, axes: int) -> Matrix:
    """Check a weight of `axes` axes, of which three are a stack."""
    block = check_type(op, kind)
    data = operand(op, name, blocks, np.uint8, (None,) * axes, stack=axes == 3)
    if data.size == 0 or data.shape[-1] % block.bytes:
        raise ArgumentError(
            f"{op}: {name}: expected rows of {kind} blocks of {block.bytes} bytes, "
            f"got shape {list(data.shape)}"
        )
    if axes == 3:
        data = spaced_by(data, block.alignment)
    return Matrix(data, data.shape[-1] // block.bytes * block.values, f"_{kind.lower()}")


def _pair(op: str, gate: ArrayLike, up: ArrayLike, kind: str, axes: int) -> tuple[Matrix, Matrix]:
    """Check two weights that one kernel reads together."""
    g, u = matrix(op, "gate", gate, kind, axes), matrix(op, "up", up, kind, axes)
    if g.blocks.shape != u.blocks.shape:
        raise ArgumentError(
            f"{op}: up: expected the shape of gate, {list(g.blocks.shape)}, got {list(u.blocks.shape)}"
        )
    return g, u


def _stacks(op: str, gate: ArrayLike, up: ArrayLike, kind: str) -> tuple[Matrix, Matrix]:
    """Check two stacks that one kernel reads together; they are copied unless they have the same stride."""
    g, u = _pair(op, gate, up, kind, axes=3)
    if g.stride == u.stride:
        return g, u
    return g._replace(blocks=aligned(g.blocks)), u._replace(blocks=aligned(u.blocks))
