"""Qwen3-Next: the layers of Qwen3.5, with the projections of a delta net grouped by key head."""

from __future__ import annotations

import numpy as np

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.delta_net import Heads, Projections
from pyturbo.layers.hybrid import mixers
from pyturbo.layers.moe import sparse_or_dense
from pyturbo.models import qwen3_5, qwen3_moe

LAYOUT = FileLayout(offset_norms=qwen3_5.OFFSET_NORMS, formats=qwen3_moe.LAYOUT.formats)


def build(entries: Entries, weights: Weights) -> Decoder:
    normalize = entries.flag("norm_topk_prob", True)
    return Decoder(
        entries,
        weights,
        mixer=mixers(entries, weights, regrouped),
        mlp=lambda i, path: sparse_or_dense(entries, weights, i, path, normalize=normalize),
    )


def regrouped(entries: Entries, weights: Weights, path: str) -> Projections:
    """Return copies of the projections with all queries first, then all keys, and so on.

    The file groups the rows of q, k, v and z by key head, with v and z of all its value heads; b and a too.
    """
    heads, hidden = Heads.read(entries), entries.count("hidden_size")
    values = heads.value_size // heads.keys
    sizes = (heads.key_dim, heads.key_dim, values, values)
    with weights.in_passing():
        qkvz = weights.linear(f"{path}.in_proj_qkvz", (heads.keys * sum(sizes), hidden))
        ba = weights.linear(f"{path}.in_proj_ba", (2 * heads.values, hidden))
    q, k, v, z = _parts(heads.keys, *sizes)
    b, a = _parts(heads.keys, *[heads.values // heads.keys] * 2)
    qkv = np.concatenate([q, k, v])
    return Projections(qkv=qkvz.rows(qkv), z=qkvz.rows(z), a=ba.rows(a), b=ba.rows(b))


def _parts(groups: int, *sizes: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the rows of each part. Every group has sizes[0] rows of the first part, and so on."""
    rows = np.arange(groups * sum(sizes)).reshape(groups, sum(sizes))
    return [part.ravel() for part in np.split(rows, np.cumsum(sizes)[:-1], axis=1)]
