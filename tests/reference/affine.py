"""Float64 references of pyturbo.ops.affine."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from reference.activation import silu


class Weight(NamedTuple):
    """A quantised array [..., out, in], as the operations take it."""

    packed: np.ndarray
    scales: np.ndarray
    biases: np.ndarray
    bits: int
    group_size: int


def codes(w):
    """The values q [..., out, in] of the bit stream in each row of words."""
    stream = np.unpackbits(np.ascontiguousarray(w.packed, "<u4").view(np.uint8), axis=-1, bitorder="little")
    return stream.reshape(*w.packed.shape[:-1], -1, w.bits) @ (1 << np.arange(w.bits))


def dequantize(w):
    scales, biases = (np.repeat(a.astype(np.float64), w.group_size, -1) for a in (w.scales, w.biases))
    return codes(w) * scales + biases


def magnitudes(w):
    """|q * scale| + |bias|: what the rounding errors of a product with w are proportional to."""
    return dequantize(w._replace(scales=np.abs(w.scales), biases=np.abs(w.biases)))


def matmul(x, w):
    """x [tokens, in] @ w [out, in]^T, and the sum of the magnitudes that are added in it."""
    x = x.astype(np.float64)
    return x @ dequantize(w).T, np.abs(x) @ magnitudes(w).T


def gated(gate, up):
    """silu(gate) * up of two products, and the magnitude that the errors of both make in it."""
    (g, g_terms), (u, u_terms) = gate, up
    steepest = 1.1  # of silu
    return silu(g) * u, steepest * g_terms * np.abs(u) + np.abs(silu(g)) * u_terms + np.abs(silu(g) * u)


def swiglu(x, gate, up):
    """silu(x gate^T) * (x up^T)."""
    return gated(matmul(x, gate), matmul(x, up))


def expert(w, e):
    """A copy of matrix e of a stack."""
    return w._replace(packed=w.packed[e].copy(), scales=w.scales[e].copy(), biases=w.biases[e].copy())


def per_expert(product, x, ids, *stacks, expert=expert):
    """`product` of x [tokens, in] or [tokens, k, in] with the experts ids [tokens, k] of the stacks."""
    rows = np.broadcast_to(x[:, None] if x.ndim == 2 else x, (*ids.shape, x.shape[-1]))
    one = [product(rows[i][None], *(expert(w, ids[i]) for w in stacks)) for i in np.ndindex(ids.shape)]
    return tuple(np.reshape([part[n][0] for part in one], (*ids.shape, -1)) for n in range(2))


def per_bucket(product, x, offsets, *stacks, expert=expert):
    """`product` of the rows offsets[e] .. offsets[e + 1] of x with expert e of the stacks."""
    parts = [product(x[a:b], *(expert(w, e) for w in stacks)) for e, (a, b) in enumerate(pairwise(offsets))]
    return tuple(np.concatenate([part[n] for part in parts]) for n in range(2))


def grouped_matmul(x, offsets, w):
    return per_bucket(matmul, x, offsets, w)


def grouped_swiglu(x, offsets, gate, up):
    return per_bucket(swiglu, x, offsets, gate, up)
