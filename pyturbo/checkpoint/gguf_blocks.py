"""Block types of GGUF in the affine format of pyturbo.ops: codes, and a scale and bias for each 32 values.

Every type but Q6_K is such a format already, so that nothing is rounded: w = q * scale + bias as GGML
computes it. Q6_K has a scale for each 16 values and is quantised again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyturbo._arrays import Array, aligned, aligned_empty
from pyturbo.formats import Affine
from pyturbo.ops import affine_quantize

GROUP = 32

_BLOCK_VALUES = 1 << 18  # values converted at a time
_VALUE_BYTES = 16  # memory needed for each of them
_LARGEST_FLOAT16 = np.finfo(np.float16).max


class Groups(NamedTuple):
    codes: Array  # uint8 [groups, 32]
    scales: Array  # float32 [groups]
    biases: Array  # float32 [groups]


class BlockType(NamedTuple):
    bytes: int  # size of a block
    values: int
    bits: int  # size of a code
    scales: Any  # type of scales and biases
    decode: Callable[[Array], Groups] | None  # takes blocks [n, bytes]; None: they are quantised again


class Rows(Protocol):
    """Rows of blocks: uint8 [out, bytes] in memory or in a file."""

    def __getitem__(self, part: slice) -> Array: ...


def work_bytes(in_dim: int) -> int:
    """Return the memory that `to_affine` needs beside its result, for rows of `in_dim` values."""
    return max(_BLOCK_VALUES, in_dim) * _VALUE_BYTES


def affine_arrays(kind: str, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], Any]]:
    """Return shapes and types of the arrays that `to_affine` returns: packed codes, scales, biases."""
    (out_dim, in_dim), block = shape, BLOCK_TYPES[kind]
    groups = (out_dim, in_dim // GROUP)
    return [((out_dim, in_dim * block.bits // 32), np.uint32), (groups, block.scales), (groups, block.scales)]


def to_affine(
    kind: str, shape: tuple[int, ...], rows: Rows, places: Array | None = None
) -> tuple[Affine, float]:
    """Return a matrix [out, in], and the largest absolute error, which is zero for all types but Q6_K.

    Row i goes to row `places[i]`. Scales and biases become float32 if a scale exceeds the type that
    `affine_arrays` states, which happens in damaged files only.
    """
    block, largest = BLOCK_TYPES[kind], 0.0
    packed, scales, biases = (aligned_empty(*array) for array in affine_arrays(kind, shape))
    for part in _parts(*shape):
        with np.errstate(all="ignore"):  # a damaged scale may be NaN or inf, which is kept
            groups, error = _groups(block, rows[part].reshape(-1, block.bytes))
        largest = float(np.maximum(largest, error))
        if scales.dtype == np.float16 and not (_within(groups.scales) and _within(groups.biases)):
            scales, biases = aligned(scales, np.float32), aligned(biases, np.float32)
        to, count = part if places is None else places[part], part.stop - part.start
        packed[to] = pack(groups.codes, block.bits).reshape(count, -1)
        scales[to] = groups.scales.reshape(count, -1)
        biases[to] = groups.biases.reshape(count, -1)
    return Affine(packed, scales, biases, block.bits, GROUP), largest


def _groups(block: BlockType, blocks: Array) -> tuple[Groups, float]:
    """Return the groups of blocks, and the largest absolute error."""
    if block.decode is not None:
        return block.decode(blocks), 0.0
    values = q6_k_values(blocks).reshape(-1, GROUP)
    packed, scales, biases = affine_quantize(values, block.bits, GROUP)
    codes = packed.view(np.uint8)  # codes have 8 bits
    difference = codes * scales
    difference += biases
    difference -= values
    return Groups(codes, scales.reshape(-1), biases.reshape(-1)), np.abs(difference, difference).max()


def pack(codes: Array, bits: int) -> Array:
    """Pack codes, 8 of which fill `bits` bytes, into a little-endian stream of words."""
    data: Array = codes.reshape(-1)
    if bits == 4:
        data = data[0::2] | data[1::2] << np.uint8(4)
    elif bits != 8:
        units = data.reshape(-1, 8)
        stream = np.zeros(len(units), "<u8")
        for i in range(8):
            stream |= units[:, i].astype(np.uint64) << np.uint64(i * bits)
        data = stream.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)
    return data.view(np.uint32)


def q6_k_values(blocks: Array) -> Array:
    """Decode blocks of ql [128], qh [64], int8 scales [16], d: w = d * scale * (q - 32), float32 [n, 256].

    A half of 128 values takes 64 bytes of ql and 32 of qh; value 32 * i + j of it has its low four bits in
    nibble i // 2 of ql[32 * (i % 2) + j], its high two in bits 2 * i of qh[j].
    """
    n = len(blocks)
    low = blocks[:, :128].reshape(n, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & 15
    high = blocks[:, 128:192].reshape(n, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = low.reshape(n, 256) | high.reshape(n, 256) << np.uint8(4)
    scales = blocks[:, 192:208].copy().view(np.int8)
    factors = _halves(blocks, 208)[:, None] * scales.astype(np.float32)
    values: Array = (codes.astype(np.float32) - 32).reshape(n, 16, 16) * factors[:, :, None]
    return values.reshape(n, 256)


def _nibbles(data: Array) -> Array:
    """Split bytes [n, k] into nibbles [n, 2 k]: all low ones, then all high ones."""
    both: Array = np.concatenate((data & 15, data >> 4), axis=-1)
    return both


def _fifth_bits(data: Array) -> Array:
    """Unpack four bytes [n, 4], one bit for each of 32 values, to 0 or 16."""
    bits: Array = np.unpackbits(data, axis=-1, bitorder="little") << np.uint8(4)
    return bits


def _halves(blocks: Array, at: int) -> Array:
    """Return the float16 at byte `at` of each block, as float32."""
    halves: Array = blocks[:, at : at + 2].copy().view(np.float16)
    return halves[:, 0].astype(np.float32)


def _q4_0(blocks: Array) -> Groups:
    d = _halves(blocks, 0)
    return Groups(_nibbles(blocks[:, 2:]), d, -8 * d)


def _q4_1(blocks: Array) -> Groups:
    return Groups(_nibbles(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2))


def _q5_0(blocks: Array) -> Groups:
    d = _halves(blocks, 0)
    return Groups(_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), d, -16 * d)


def _q5_1(blocks: Array) -> Groups:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return Groups(codes, _halves(blocks, 0), _halves(blocks, 2))


def _q8_0(blocks: Array) -> Groups:
    d = _halves(blocks, 0)
    return Groups(blocks[:, 2:] ^ np.uint8(128), d, -128 * d)


def _k_scales(blocks: Array) -> tuple[Array, Array]:
    """Return scales d * sc and biases -dmin * m, [8 n], from d, dmin and 12 bytes of 6-bit sc and m.

    Groups 0 to 3 have their six bits in bytes 0 to 3 (sc) and 4 to 7 (m). Groups 4 to 7 have their low four
    bits in the nibbles of bytes 8 to 11, and their high two bits at the top of bytes 0 to 3 and 4 to 7.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    sc = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=-1)
    m = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=-1)
    scales = _halves(blocks, 0)[:, None] * sc.astype(np.float32)
    biases = -_halves(blocks, 2)[:, None] * m.astype(np.float32)
    return scales.reshape(-1), biases.reshape(-1)


def _q4_k(blocks: Array) -> Groups:
    """Decode Q4_K: groups 2 i and 2 i + 1 are the low and the high nibbles of 32 bytes."""
    codes = _nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 32)
    return Groups(codes, *_k_scales(blocks))


def _q5_k(blocks: Array) -> Groups:
    """Decode Q5_K: like Q4_K, with bit i of byte j of 32 more bytes as fifth bit of value j of group i."""
    low = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return Groups((low | high << np.uint8(4)).reshape(-1, 32), *_k_scales(blocks))


BLOCK_TYPES = {
    "Q4_0": BlockType(18, 32, 4, np.float16, _q4_0),
    "Q4_1": BlockType(20, 32, 4, np.float16, _q4_1),
    "Q5_0": BlockType(22, 32, 5, np.float16, _q5_0),
    "Q5_1": BlockType(24, 32, 5, np.float16, _q5_1),
    "Q8_0": BlockType(34, 32, 8, np.float16, _q8_0),
    "Q4_K": BlockType(144, 256, 4, np.float32, _q4_k),
    "Q5_K": BlockType(176, 256, 5, np.float32, _q5_k),
    "Q6_K": BlockType(210, 256, 8, np.float32, None),
}


def _parts(rows: int, width: int) -> list[slice]:
    """Return slices of rows that have at most _BLOCK_VALUES values, or a single row."""
    step = max(1, _BLOCK_VALUES // max(1, width))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _within(values: Array) -> bool:
    """Return whether float16 can hold values that are float16 numbers times powers of two from one on."""
    return bool(np.abs(values).max() <= _LARGEST_FLOAT16)
