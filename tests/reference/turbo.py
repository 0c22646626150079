"""Float64 reference of the compressed cache: the codec by its definition, attention over what it decodes to.

Nothing here comes from the kernels: Hadamard matrices are dense, bit streams are Python integers or single
bits. Centroids are those of make_tables.py, which tests/kernels/test_turbo_codec.py checks by the definition
below.
"""

import json
import math
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from turboquant import make_tables

GOLDEN = Path(__file__).parents[1] / "goldens" / "hadamard.json"  # from MLX


@cache
def hadamard_matrix(dim):
    """H of +1 and -1; Sylvester's for powers of two, else that of MLX."""
    if dim & (dim - 1):
        rows = json.loads(GOLDEN.read_text())[str(dim)]
        return np.array([[1.0 if sign == "+" else -1.0 for sign in row] for row in rows])
    return np.array([[(-1.0) ** (i & j).bit_count() for j in range(dim)] for i in range(dim)])


def rotate(x, signs=1.0):
    dim = x.shape[-1]
    return (np.asarray(x, np.float64) * signs) @ hadamard_matrix(dim).T / math.sqrt(dim)


def unrotate(y, signs=1.0):
    dim = y.shape[-1]
    return np.asarray(y, np.float64) @ hadamard_matrix(dim) / math.sqrt(dim) * signs


def cell_means(centroids):
    """The mean of a standard normal variable in the cell of each centroid."""
    normal = NormalDist()
    edges = [-math.inf, *((centroids[1:] + centroids[:-1]) / 2), math.inf]
    density = [0.0 if math.isinf(edge) else normal.pdf(edge) for edge in edges]
    below = [0.0 if edge == -math.inf else 1.0 if edge == math.inf else normal.cdf(edge) for edge in edges]
    upper = [1.0 if edge == -math.inf else 0.0 if edge == math.inf else normal.cdf(-edge) for edge in edges]
    shares = [
        (upper[k] - upper[k + 1]) if edges[k] >= 0 else (below[k + 1] - below[k])
        for k in range(len(centroids))
    ]
    return np.array([(density[k] - density[k + 1]) / shares[k] for k in range(len(centroids))])


def distortion(centroids):
    """The mean squared error of a standard normal variable: 1 - 2 E[x c] + E[c^2]."""
    normal = NormalDist()
    edges = [-math.inf, *((centroids[1:] + centroids[:-1]) / 2), math.inf]
    total = 1.0
    for k, c in enumerate(centroids):
        low, high = edges[k], edges[k + 1]
        share = (normal.cdf(high) if high < math.inf else 1.0) - (normal.cdf(low) if low > -math.inf else 0.0)
        first = (normal.pdf(low) if low > -math.inf else 0.0) - (normal.pdf(high) if high < math.inf else 0.0)
        total += c * c * share - 2 * c * first
    return total


@cache
def codebook(bits):
    """The centroid of each code. Those of 8 bits are signed numbers of steps."""
    if bits == 8:
        return np.arange(256).astype(np.int8) / 64
    return make_tables.codebook(bits)


def pack(codes, bits):
    """uint32 words of one row of codes."""
    stream = sum(int(code) << (d * bits) for d, code in enumerate(codes))
    return np.array(
        [(stream >> (32 * w)) & 0xFFFFFFFF for w in range(-(-len(codes) * bits // 32))], np.uint32
    )


def unpack(words, dim, bits):
    """Codes [..., dim] of rows of uint32 words."""
    single = np.unpackbits(np.ascontiguousarray(words, "<u4").view(np.uint8), axis=-1, bitorder="little")
    return single[..., : dim * bits].reshape(*words.shape[:-1], dim, bits) @ (1 << np.arange(bits))


def encode(y, bits):
    """Codes of rotated vectors y [..., dim], scales that keep lengths, and what became codes."""
    dim, centroids = y.shape[-1], codebook(bits)
    norms = np.linalg.norm(y, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = 127 / 64 / np.abs(y).max(axis=-1) if bits == 8 else math.sqrt(dim) / norms
        scaled = y * np.where(norms > 1e-8, factor, 0.0)[..., None]
    if bits == 8:
        codes = np.rint(scaled * 64).astype(np.int8).view(np.uint8)
    else:
        codes = np.searchsorted((centroids[1:] + centroids[:-1]) / 2, scaled, side="left")
    lengths = np.linalg.norm(centroids[codes], axis=-1)
    return codes, np.divide(norms, lengths, out=norms.copy(), where=lengths > 0), scaled


def decode(rows, signs=1.0):
    """The rotated vectors [capacity, kv_heads, dim] of TurboRows without a batch. Exact rows are left out."""
    return _parts(rows, signs, codebook(rows.bits), lambda mean: mean)


def magnitudes(rows, signs=1.0):
    """Return the same sums with the magnitudes of codes and means, which bound rounding errors.

    An 8-bit code of 0 counts as half a step. Matrix units hold weights as halves relative to the largest, so
    small weights are less precise there. It shows where the value of the key with the most weight is 0.
    """
    steps = 1 / 128 if rows.bits == 8 else 0
    return _parts(rows, signs, np.maximum(np.abs(codebook(rows.bits)), steps), np.abs)


def _parts(rows, signs, centroids, of_mean):
    codes = unpack(rows.packed, rows.dim, rows.bits)
    y = centroids[codes] * rows.scales[..., None].astype(np.float64)
    if rows.means is not None:
        y = y + of_mean(rows.means[..., None].astype(np.float64) * rotate(np.ones(rows.dim), signs))
    return y.swapaxes(0, 1)


def in_order(vectors, ring_start, live):
    """Vectors of a ring [capacity, ...] from the oldest to the newest."""
    return vectors[(ring_start + np.arange(live)) % len(vectors)]
