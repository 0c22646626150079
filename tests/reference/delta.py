"""Float64 references of pyturbo.ops.delta, and the magnitudes their rounding errors are proportional to."""

import numpy as np

from reference.activation import sigmoid, silu


def f64(*arrays):
    return [array.astype(np.float64) for array in arrays]


def decay_beta(a, b, a_log, dt_bias):
    a, a_log, dt_bias = f64(a, a_log, dt_bias)
    return np.exp(-np.exp(a_log) * np.logaddexp(0, a + dt_bias)), sigmoid(b)


def decay_magnitude(a, a_log, dt_bias):
    """g times what the relative errors of the exponent's factors are multiplied by."""
    a, a_log, dt_bias = f64(a, a_log, dt_bias)
    x = a + dt_bias
    exponent = np.exp(a_log) * np.logaddexp(0, x)
    slope = np.exp(a_log) * sigmoid(x) * (np.abs(a) + np.abs(dt_bias))
    return np.exp(-exponent) * (1 + exponent + slope)


def conv1d(x, history, weight):
    """y and the new history, which is exact."""
    rows = np.concatenate([history, x])
    u, w = f64(rows, weight)
    with np.errstate(invalid="ignore"):
        y = silu(sum(w[:, i] * u[i : i + len(x)] for i in range(4)))
    return y, rows[-3:]


def conv1d_magnitude(x, history, weight):
    u, w = f64(np.abs(np.concatenate([history, x])), np.abs(weight))
    return sum(w[:, i] * u[i : i + len(x)] for i in range(4))


def delta_net(q, k, v, g, beta, state, tiled=False):
    q, k, v, g, beta, s = f64(q, k, v, g, beta, state)
    y = np.empty(v.shape)
    for t in range(v.shape[0]):
        for h in range(v.shape[1]):
            key_head = h % k.shape[1] if tiled else h // (v.shape[1] // k.shape[1])
            key, query = k[t, key_head], q[t, key_head]
            s[h] *= g[t, h]
            delta = beta[t, h] * (v[t, h] - s[h] @ key)
            s[h] += np.outer(delta, key)
            y[t, h] = s[h] @ query
    return y, s


def delta_net_magnitude(q, k, v, g, beta, state):
    """For y and for the state, row by row: the lengths of what was rounded, added up over the tokens.

    For |k| <= 1 and beta in [0, 1] a step takes an earlier error times g at most, so they decay and add up.
    """
    heads = v.shape[1] // k.shape[1]
    key, query = (np.repeat(np.linalg.norm(x.astype(np.float64), axis=-1), heads, 1) for x in (k, q))
    y, rounded = np.empty(v.shape), np.zeros(v.shape[1:])
    for t in range(len(v)):
        before = np.linalg.norm(state.astype(np.float64), axis=-1)
        step = slice(t, t + 1)
        state = delta_net(q[step], k[step], v[step], g[step], beta[step], state)[1]
        after = np.linalg.norm(state, axis=-1)
        rounded = g[t, :, None] * (rounded + before) + after + np.abs(v[t]) * key[t, :, None]
        y[t] = (rounded + after) * query[t, :, None]
    return y, np.broadcast_to(rounded[..., None], state.shape)
