"""GGUF block types from their definitions, and float64 references of pyturbo.ops.gguf.

`permuted` is the order of rotary rows in files of the llama architecture.
"""

from typing import NamedTuple

import numpy as np

from reference import affine

#: bytes and values of a block
SIZES = {
    "Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32), "Q5_1": (24, 32), "Q8_0": (34, 32),
    "Q2_K": (84, 256), "Q3_K": (110, 256), "Q4_K": (144, 256), "Q5_K": (176, 256), "Q6_K": (210, 256),
    "IQ4_NL": (18, 32), "IQ4_XS": (136, 256), "MXFP4": (17, 32),
}  # fmt: skip

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])


class Weight(NamedTuple):
    """A quantised array [..., out, in], as the operations take it."""

    blocks: np.ndarray
    kind: str


class Parts(NamedTuple):
    """Integers and factors of blocks; value = codes * scales + biases."""

    codes: np.ndarray  # [blocks, groups, values of a group]
    scales: np.ndarray  # float64 [blocks, groups]
    biases: np.ndarray | float = 0.0  # likewise


def parts(w):
    """The parts of all blocks, one after another."""
    size, _ = SIZES[w.kind]
    with np.errstate(all="ignore"):
        return globals()[f"_{w.kind.lower()}"](w.blocks.reshape(-1, size))


def dequantize(w):
    """The values [..., out, in] in float32, each rounded once: codes times scales are exact."""
    size, count = SIZES[w.kind]
    codes, scales, biases = parts(w)
    with np.errstate(all="ignore"):
        values = codes.astype(np.float32) * scales.astype(np.float32)[..., None]
        if isinstance(biases, np.ndarray):
            values += biases.astype(np.float32)[..., None]
    return values.reshape(*w.blocks.shape[:-1], w.blocks.shape[-1] // size * count)


def magnitudes(w):
    """|code * scale| + |bias|: what the rounding errors of a product with w are proportional to."""
    codes, scales, biases = parts(w)
    biases = np.broadcast_to(np.abs(biases), scales.shape)
    return (np.abs(codes) * np.abs(scales)[..., None] + biases[..., None]).reshape(dequantize(w).shape)


def matmul(x, w):
    """x [tokens, in] @ w [out, in]^T, and the sum of the magnitudes that are added in it."""
    x = x.astype(np.float64)
    return x @ dequantize(w).T.astype(np.float64), np.abs(x) @ magnitudes(w).T


def swiglu(x, gate, up):
    """silu(x gate^T) * (x up^T), and the magnitude that the errors of both products make in it."""
    return affine.gated(matmul(x, gate), matmul(x, up))


def expert(w, e):
    """A copy of matrix e of a stack."""
    return w._replace(blocks=w.blocks[e].copy())


def per_expert(product, x, ids, *stacks):
    """`product` of x [tokens, in] or [tokens, k, in] with the experts ids [tokens, k] of the stacks."""
    return affine.per_expert(product, x, ids, *stacks, expert=expert)


def grouped_matmul(x, offsets, w):
    return affine.per_bucket(matmul, x, offsets, w, expert=expert)


def grouped_swiglu(x, offsets, gate, up):
    return affine.per_bucket(swiglu, x, offsets, gate, up, expert=expert)


def permuted(rows, heads):
    """Rows [heads * dim, ...] in half-split order, as a file of the llama architecture holds them."""
    dim = len(rows) // heads
    order = [
        head * dim + half * dim // 2 + i for head in range(heads) for i in range(dim // 2) for half in (0, 1)
    ]
    return rows[order]


def _half(b, at):
    """A 16-bit float of each block, as a column."""
    return np.ascontiguousarray(b[:, at : at + 2]).view(np.float16).astype(np.float64)


def _bits(b, count):
    """Runs of `count` bits of each byte [..., bytes] -> [..., 8 / count, bytes], the lowest first."""
    shifts = np.arange(0, 8, count)[:, None]
    return b.astype(np.int64)[..., None, :] >> shifts & ((1 << count) - 1)


def _nibbles(b):
    """32 codes of each 16 bytes [n, 16]: the first sixteen are the low halves."""
    return _bits(b, 4).reshape(len(b), 1, 32)


def _fifth(b):
    """The fifth bits of 32 codes, of which each byte has eight [n, 4]."""
    return _bits(b, 1).swapaxes(1, 2).reshape(len(b), 1, 32) * 16


def _q4_0(b):
    return Parts(_nibbles(b[:, 2:]) - 8, _half(b, 0))


def _q4_1(b):
    return Parts(_nibbles(b[:, 4:]), _half(b, 0), _half(b, 2))


def _q5_0(b):
    return Parts(_nibbles(b[:, 6:]) + _fifth(b[:, 2:6]) - 16, _half(b, 0))


def _q5_1(b):
    return Parts(_nibbles(b[:, 8:]) + _fifth(b[:, 4:8]), _half(b, 0), _half(b, 2))


def _q8_0(b):
    return Parts(b[:, None, 2:].view(np.int8), _half(b, 0))


def _pairs_of_bits(b):
    """256 codes of two bits in 64 bytes: each half of them makes four runs of 32, from the low bits on."""
    return _bits(b.reshape(-1, 2, 32), 2).reshape(-1, 16, 16)


def _q2_k(b):
    scales, minima = b[:, :16] & 15, b[:, :16] >> 4
    return Parts(_pairs_of_bits(b[:, 16:80]), _half(b, 80) * scales, -(_half(b, 82) * minima))


def _q3_k(b):
    high = _bits(b[:, :32], 1).reshape(-1, 16, 16)
    low_scales = _bits(b[:, 96:104], 4).reshape(-1, 16)
    high_scales = _bits(b[:, 104:108], 2).reshape(-1, 16)
    codes = _pairs_of_bits(b[:, 32:96]) + 4 * high - 4
    return Parts(codes, _half(b, 108) * (low_scales + 16 * high_scales - 32))


def _k_factors(b):
    """The 6-bit scales and minima of a Q4_K or Q5_K block, in its 12 bytes from the fourth on."""
    s = b[:, 4:16].astype(np.int64)
    scales = [s[:, 0:4] & 63, (s[:, 8:12] & 15) + 16 * (s[:, 0:4] >> 6)]
    minima = [s[:, 4:8] & 63, (s[:, 8:12] >> 4) + 16 * (s[:, 4:8] >> 6)]
    return _half(b, 0) * np.concatenate(scales, 1), -(_half(b, 2) * np.concatenate(minima, 1))


def _q4_k(b):
    return Parts(_bits(b[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32), *_k_factors(b))


def _q5_k(b):
    low = _bits(b[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return Parts(low + 16 * _bits(b[:, 16:48], 1), *_k_factors(b))


def _q6_k(b):
    low = _bits(b[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 16, 16)
    high = _pairs_of_bits(b[:, 128:192])
    return Parts(low + 16 * high - 32, _half(b, 208) * b[:, 192:208].view(np.int8))


def _iq4_nl(b):
    return Parts(IQ4_VALUES[_nibbles(b[:, 2:])], _half(b, 0))


def _iq4_xs(b):
    high = _bits(b[:, 2:4], 2).swapaxes(1, 2).reshape(-1, 8)
    low = _bits(b[:, 4:8], 4).swapaxes(1, 2).reshape(-1, 8)
    codes = IQ4_VALUES[_bits(b[:, 8:].reshape(-1, 8, 16), 4)].reshape(-1, 8, 32)
    return Parts(codes, _half(b, 0) * (low + 16 * high - 32))


def _mxfp4(b):
    return Parts(TWICE_E2M1[_nibbles(b[:, 1:])], 2.0 ** (b[:, :1].astype(np.float64) - 128))
