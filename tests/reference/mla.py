"""Float64 references of pyturbo.ops.mla: attention as published, with keys and values of every head."""

import numpy as np

from reference import affine, attention, fp, gguf


def weight_and_magnitude(weight):
    """A weight, quantised or not, in float64, and what rounding errors of it are proportional to."""
    if isinstance(weight, affine.Weight):
        return affine.dequantize(weight), affine.magnitudes(weight)
    if isinstance(weight, fp.Weight):
        return fp.dequantize(weight), np.abs(fp.dequantize(weight))
    if isinstance(weight, gguf.Weight):
        return gguf.dequantize(weight).astype(np.float64), gguf.magnitudes(weight)
    return weight.astype(np.float64), np.abs(weight.astype(np.float64))


def key_matrices(weight, heads, nope):
    """[heads, nope, rank] of kv_b [heads * (nope + v), rank] or embed_q [heads, rank, nope]."""
    return weight.swapaxes(1, 2) if weight.ndim == 3 else weight.reshape(heads, -1, weight.shape[1])[:, :nope]


def value_matrices(weight, heads, v_dim):
    """[heads, v, rank] of kv_b or unembed_out [heads, v, rank]."""
    return weight if weight.ndim == 3 else weight.reshape(heads, -1, weight.shape[1])[:, -v_dim:]


def project_q(q_nope, keys):
    return np.einsum("thn,hnr->thr", q_nope.astype(np.float64), keys)


def project_out(mix, values):
    return np.einsum("thr,hvr->thv", mix.astype(np.float64), values)


def _as_heads(q, q_rope, latents, rope_keys):
    """Queries, keys and values of plain attention with one key head; values are as wide as keys."""
    q = np.concatenate([q.astype(np.float64), q_rope], axis=-1)
    k = np.concatenate([latents.astype(np.float64), rope_keys.astype(np.float64)], axis=-1)[:, None]
    v = k.copy()
    v[..., latents.shape[1] :] = 0
    return q, k, v


def mla_attention(q, q_rope, latents, rope_keys, scale):
    rank = latents.shape[1]
    return attention.attention(*_as_heads(q, q_rope, latents, rope_keys), scale)[..., :rank]


def mla_attention_magnitude(q, q_rope, latents, rope_keys, scale):
    rank = latents.shape[1]
    return attention.attention_magnitude(*_as_heads(q, q_rope, latents, rope_keys), scale)[..., :rank]


def expanded(q_nope, q_rope, latents, rope_keys, keys, values, scale):
    """Attention as published: every head has keys and values of its own, made of the latents -> [t, h, v]."""
    latents, rope_keys = latents.astype(np.float64), rope_keys.astype(np.float64)
    own_keys = np.einsum("jr,hnr->jhn", latents, keys)
    own_values = np.einsum("jr,hvr->jhv", latents, values)
    tokens, heads, _ = q_nope.shape
    out = np.empty((tokens, heads, values.shape[1]))
    for t, h in np.ndindex(tokens, heads):
        seen = len(latents) - tokens + t + 1
        scores = own_keys[:seen, h] @ q_nope[t, h].astype(np.float64) + rope_keys[:seen] @ q_rope[t, h]
        out[t, h] = attention.softmax(scale * scores) @ own_values[:seen, h]
    return out
