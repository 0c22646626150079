"""GGUF block types one value at a time, and the order of rotary rows in files of the llama architecture."""

import numpy as np

#: bytes and values of a block
SIZES = {
    "Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32), "Q5_1": (24, 32), "Q8_0": (34, 32),
    "Q4_K": (144, 256), "Q5_K": (176, 256), "Q6_K": (210, 256),
}  # fmt: skip


def dequantize(kind, rows):
    """uint8 [out, bytes] -> float64 [out, in]."""
    size, _ = SIZES[kind]
    block = globals()[f"_{kind.lower()}"]
    return np.array([[w for i in range(0, len(row), size) for w in block(row[i : i + size])] for row in rows])


def permuted(rows, heads):
    """Rows [heads * dim, ...] in half-split order, as a file of the llama architecture holds them."""
    dim = len(rows) // heads
    order = [
        head * dim + half * dim // 2 + i for head in range(heads) for i in range(dim // 2) for half in (0, 1)
    ]
    return rows[order]


def _half(block, at):
    return float(np.frombuffer(bytes(block[at : at + 2]), np.float16)[0])


def _nibble(data, j):
    """Value j of 32 in 16 bytes: the first sixteen are the low halves."""
    return int(data[j]) & 15 if j < 16 else int(data[j - 16]) >> 4


def _bit(data, j):
    return int(data[j // 8]) >> (j % 8) & 1


def _q4_0(b):
    return [_half(b, 0) * (_nibble(b[2:], j) - 8) for j in range(32)]


def _q4_1(b):
    return [_half(b, 0) * _nibble(b[4:], j) + _half(b, 2) for j in range(32)]


def _q5_0(b):
    return [_half(b, 0) * (_nibble(b[6:], j) + 16 * _bit(b[2:], j) - 16) for j in range(32)]


def _q5_1(b):
    return [_half(b, 0) * (_nibble(b[8:], j) + 16 * _bit(b[4:], j)) + _half(b, 2) for j in range(32)]


def _q8_0(b):
    return [_half(b, 0) * int(np.int8(b[2 + j])) for j in range(32)]


def _k_factors(s, group):
    """The 6-bit scale and minimum of a group, from the 12 bytes of a Q4_K or Q5_K block."""
    s = [int(byte) for byte in s]
    if group < 4:
        return s[group] & 63, s[group + 4] & 63
    return (s[group + 4] & 15) + 16 * (s[group - 4] >> 6), (s[group + 4] >> 4) + 16 * (s[group] >> 6)


def _q4_k(b, fifth=lambda group, j: 0, codes=16):
    values = []
    for group in range(8):
        scale, minimum = _k_factors(b[4:16], group)
        for j in range(32):
            byte = int(b[codes + 32 * (group // 2) + j])
            q = (byte & 15 if group % 2 == 0 else byte >> 4) + 16 * fifth(group, j)
            values.append(_half(b, 0) * scale * q - _half(b, 2) * minimum)
    return values


def _q5_k(b):
    return _q4_k(b, fifth=lambda group, j: int(b[16 + j]) >> group & 1, codes=48)


def _q6_k(b):
    values = []
    for i in range(256):
        half, group, j = i // 128, i % 128 // 32, i % 32
        low = int(b[64 * half + 32 * (group % 2) + j])
        low = low & 15 if group < 2 else low >> 4
        high = int(b[128 + 32 * half + j]) >> (2 * group) & 3
        values.append(_half(b, 208) * int(np.int8(b[192 + i // 16])) * (low + 16 * high - 32))
    return values
