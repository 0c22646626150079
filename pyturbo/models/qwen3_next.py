"""Qwen3-Next: the layers of Qwen3.5, with the projections of a delta net grouped by key head."""

from __future__ import annotations

import numpy as np

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.delta_net import Heads, Projections
from pyturbo.layers.hybrid import mixers
from pyturbo.layers.moe import sparse_or_dense
from pyturbo.models import qwen3_5, qwen3_moe

#: Older GGUF files have all projections but two in one tensor, as they are published.
_GGUF_NAMES = {"ssm_in": "linear_attn.in_proj_qkvz", "ssm_ba": "linear_attn.in_proj_ba"}

LAYOUT = FileLayout(
    offset_norms=qwen3_5.OFFSET_NORMS,
    formats=qwen3_moe.FORMATS,
    gguf=Gguf(names=qwen3_5.GGUF_NAMES | qwen3_moe.GGUF_NAMES | _GGUF_NAMES),
)


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
    GGUF files have the rows of q, k and v, and those of z, in order.
    """
    heads, hidden = Heads.read(entries), entries.count("hidden_size")
    values = heads.value_size // heads.keys
    sizes = (heads.key_dim, heads.key_dim, values, values)
    b, a = _parts(heads.keys, *[heads.values // heads.keys] * 2)
    with weights.in_passing():
        ba = weights.linear(f"{path}.in_proj_ba", (2 * heads.values, hidden))
    if f"{path}.in_proj_qkv.weight" in weights:
        qkv = weights.linear(f"{path}.in_proj_qkv", (2 * heads.key_size + heads.value_size, hidden))
        z = weights.linear(f"{path}.in_proj_z", (heads.value_size, hidden))
        return Projections(qkv, z, a=ba.rows(a), b=ba.rows(b))
    with weights.in_passing():
        qkvz = weights.linear(f"{path}.in_proj_qkvz", (heads.keys * sum(sizes), hidden))
    *qkv_rows, z_rows = _parts(heads.keys, *sizes)
    rows = np.concatenate(qkv_rows)
    return Projections(qkv=qkvz.rows(rows), z=qkvz.rows(z_rows), a=ba.rows(a), b=ba.rows(b))


def _parts(groups: int, *sizes: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the rows of each part. Every group has sizes[0] rows of the first part, and so on."""
    rows = np.arange(groups * sum(sizes)).reshape(groups, sum(sizes))
    return [part.ravel() for part in np.split(rows, np.cumsum(sizes)[:-1], axis=1)]
