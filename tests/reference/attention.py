"""Float64 references of pyturbo.ops.attention: one query head at a time, over the keys that it sees."""

import numpy as np


def attention(q, k, v, scale, causal=True, window=0, sinks=None, softcap=0.0):
    return _by_row(q, k, v, causal, window, lambda *row: _row(*row, scale, sinks, softcap))


def attention_magnitude(q, k, v, scale, causal=True, window=0, sinks=None, softcap=0.0):
    """Sum of the |terms| added, times what an error in a score, exponentiated, is proportional to."""
    return _by_row(q, k, v, causal, window, lambda *row: _row_magnitude(*row, scale, sinks, softcap))


def attention_scores(q, k, scale):
    shared = np.repeat(k.astype(np.float64), q.shape[1] // k.shape[1], axis=1)
    return scale * np.einsum("tad,jad->taj", q.astype(np.float64), shared)


def attention_values(p, v):
    shared = np.repeat(v.astype(np.float64), p.shape[1] // v.shape[1], axis=1)
    return np.einsum("taj,jad->tad", p.astype(np.float64), shared)


def softmax(x):
    with np.errstate(invalid="ignore"):
        weights = np.exp(x.astype(np.float64) - np.max(x, axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)


def kv_append(cache, rows, position):
    out = cache.copy()
    for t in range(len(rows)):
        with np.errstate(over="ignore"):
            out[(position + t) % len(cache)] = rows[t].astype(cache.dtype)
    return out


def visible_keys(tokens, context, t, causal, window):
    """The keys that query t of a chunk sees; the last query stands at the last key."""
    i = context - tokens + t
    return [j for j in range(context) if not causal or (j <= i and (window == 0 or i - j < window))]


def _by_row(q, k, v, causal, window, compute):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    (tokens, heads, dim), kv_heads = q.shape, k.shape[1]
    y = np.zeros((tokens, heads, dim))
    for t in range(tokens):
        seen = visible_keys(tokens, len(k), t, causal, window)
        if not seen:
            continue
        keys, values = k[seen], v[seen]
        with np.errstate(invalid="ignore", over="ignore"):
            for a in range(heads):
                b = a // (heads // kv_heads)
                y[t, a] = compute(a, q[t, a], keys[:, b], values[:, b])
    return y


def _row(head, q, k, v, scale, sinks, softcap):
    return _weights(head, k @ q, scale, sinks, softcap) @ v


def _row_magnitude(head, q, k, v, scale, sinks, softcap):
    errors = abs(scale) * np.max(np.abs(k) @ np.abs(q)) + softcap
    return (1 + errors) * (_weights(head, k @ q, scale, sinks, softcap) @ np.abs(v))


def _weights(head, products, scale, sinks, softcap):
    logits = scale * products
    if softcap:
        logits = softcap * np.tanh(logits / softcap)
    if sinks is not None:
        logits = np.append(logits, np.float64(sinks[head]))
    return softmax(logits)[: len(products)]
