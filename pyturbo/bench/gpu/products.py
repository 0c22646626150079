"""Cases of products with matrices: dense, quantised, and of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyturbo import ops
from pyturbo.bench.gpu.cases import Case, Goal, Peer, Shape, Sizes
from pyturbo.bench.gpu.memory import Operands
from pyturbo.bench.gpu.timing import Call
from pyturbo.ops.fp_format import FP_FORMATS
from pyturbo.ops.gguf_format import GGUF_TYPES

GROUP = 64
_BIG = 100_000  # rows: such a matrix fills every device


def products(sizes: Sizes) -> Iterator[Case]:
    """Yield products with one token, format by format, then those with few, and with a chunk of a prompt."""
    for shape in sizes.matrices:
        goal = Goal(read=0.7) if shape[0] > _BIG else Goal(torch=True)
        yield Case(_name("4 bits", shape), _affine(4, shape), peer=_int4(shape), goal=goal)
    others = {"mxfp4": _fp("mxfp4"), "8 bits": _affine_of(8), "Q4_K": _gguf("Q4_K"), "Q6_K": _gguf("Q6_K")}
    for name, make in others.items():
        for shape in sizes.matrices:
            yield Case(_name(name, shape), make(shape), goal=Goal(like=_name("4 bits", shape)))
    yield from _dense(sizes)
    yield from _experts(sizes)
    out, width = sizes.product
    for tokens in sizes.few:
        of = f"{tokens} tokens, {out} x {width}"
        yield Case(f"matmul 4 bits, {of}", _affine(4, sizes.product, tokens))
        bf16, peer = _bf16(sizes.product, tokens), _bf16_peer(sizes.product, tokens)
        yield Case(f"matmul bf16, {of}", bf16, peer=peer)
    yield from _chunk(sizes)


def _name(form: str, shape: Shape) -> str:
    return f"matvec {form}, {shape[0]} x {shape[1]}"


def _token(width: int, tokens: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((tokens, width)).astype(np.float32)


def _int4(shape: Shape) -> Peer:
    return lambda torch: torch.int4_matvec(*shape)


def _weight(operands: Operands, bits: int, *shape: int, share: float | None = None) -> tuple[Any, ...]:
    """Return an affine weight; with a share, one that all calls have in common."""
    *rows, width = shape

    def make(columns: int, dtype: Any) -> Any:
        whole = (*rows, columns)
        return operands.take(whole, dtype) if share is None else operands.keep(whole, dtype, share)

    packed = make(width * bits // 32, np.uint32)
    scales, biases = (make(width // GROUP, ml_dtypes.bfloat16) for _ in range(2))
    return packed, scales, biases, bits, GROUP


def _affine(bits: int, shape: Shape, tokens: int = 1) -> Call:
    x = _token(shape[1], tokens)
    return lambda operands: ops.affine_matmul(x, *_weight(operands, bits, *shape))


def _affine_of(bits: int) -> Any:
    return lambda shape: _affine(bits, shape)


def _fp(mode: str) -> Any:
    bits, group = FP_FORMATS[mode][:2]

    def make(shape: Shape) -> Call:
        out, width = shape
        x = _token(width)

        def call(operands: Operands) -> Any:
            packed = operands.take((out, width * bits // 32), np.uint32)
            return ops.fp_matmul(x, packed, operands.take((out, width // group), np.uint8), mode)

        return call

    return make


def _gguf(kind: str) -> Any:
    block = GGUF_TYPES[kind]

    def make(shape: Shape) -> Call:
        out, width = shape
        x, row = _token(width), width // block.values * block.bytes
        return lambda operands: ops.gguf_matmul(x, operands.take((out, row), np.uint8), kind)

    return make


def _dense(sizes: Sizes) -> Iterator[Case]:
    for shape in (sizes.matrices[0], (sizes.experts, sizes.hidden)):
        yield Case(_name("bf16", shape), _bf16(shape), peer=_bf16_peer(shape))


def _bf16(shape: Shape, tokens: int = 1) -> Call:
    x = _token(shape[1], tokens)
    return lambda operands: ops.matmul(x, operands.take(shape, ml_dtypes.bfloat16))


def _bf16_peer(shape: Shape, tokens: int = 1) -> Peer:
    return lambda torch: torch.matmul(tokens, *shape)


def _experts(sizes: Sizes) -> Iterator[Case]:
    """Yield the two products of a token with its experts. Each call has other experts of one stack."""
    share = sizes.chosen / sizes.experts
    rng = np.random.default_rng(2)
    choices = [rng.permutation(sizes.experts)[: sizes.chosen].astype(np.int32)[None] for _ in range(64)]
    x = _token(sizes.hidden)
    h = np.random.default_rng(1).standard_normal((1, sizes.chosen, sizes.inner)).astype(np.float32)

    def gate_up(operands: Operands) -> Any:
        gate, up = (
            _weight(operands, 4, sizes.experts, sizes.inner, sizes.hidden, share=share) for _ in range(2)
        )
        return ops.affine_experts_swiglu(x, choices[operands.call % 64], gate, up)

    def down(operands: Operands) -> Any:
        weight = _weight(operands, 4, sizes.experts, sizes.hidden, sizes.inner, share=share)
        return ops.affine_experts_matmul(h, choices[operands.call % 64], *weight)

    of = f"{sizes.chosen} of {sizes.experts} experts"
    yield Case(f"gate-up 4 bits, {of}, {sizes.inner} x {sizes.hidden}", gate_up)
    yield Case(f"down 4 bits, {of}, {sizes.hidden} x {sizes.inner}", down)


def _chunk(sizes: Sizes) -> Iterator[Case]:
    out, width = sizes.product
    flops = 2.0 * sizes.prompt * out * width
    yield Case(
        f"matmul 4 bits, {sizes.prompt} tokens, {out} x {width}",
        _affine(4, sizes.product, sizes.prompt),
        flops,
        lambda torch: torch.matmul(sizes.prompt, out, width),
        Goal(us=63),
    )
    bf16, peer = _bf16(sizes.product, sizes.prompt), _bf16_peer(sizes.product, sizes.prompt)
    yield Case(f"matmul bf16, {sizes.prompt} tokens, {out} x {width}", bf16, flops, peer)
    rows = sizes.prompt * sizes.chosen
    counts = np.random.default_rng(3).multinomial(rows, np.full(sizes.experts, 1 / sizes.experts))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)

    def grouped(operands: Operands) -> Any:
        x = operands.keep((rows, sizes.hidden))
        weight = _weight(operands, 4, sizes.experts, sizes.inner, sizes.hidden)
        return ops.affine_grouped_matmul(x, offsets, *weight)

    name = f"grouped 4 bits, {rows} rows, {sizes.experts} experts, {sizes.inner} x {sizes.hidden}"
    yield Case(name, grouped, 2.0 * rows * sizes.inner * sizes.hidden, goal=Goal(us=65))
