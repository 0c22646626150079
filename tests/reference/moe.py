"""References of pyturbo.ops.moe: float64 where anything is computed."""

import numpy as np

from reference.activation import sigmoid
from reference.elementwise import weighted_sum


def route(logits, k, normalize=True):
    """NaN ranks first, then by logit from the largest on, then by id."""
    missing = np.isnan(logits)
    ids = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
    ids = np.lexsort((ids, np.where(missing, 0, -logits), ~missing))[:, :k]
    with np.errstate(invalid="ignore"):
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        weights = np.take_along_axis(probabilities, ids, 1)
        return ids, weights / weights.sum(axis=1, keepdims=True) if normalize else weights


def route_magnitude(logits, ids, weights):
    """Weights times what a rounding error of their exponents is multiplied by."""
    chosen = np.take_along_axis(logits.astype(np.float64), ids, 1)
    return weights * (2 + logits.max(axis=1, keepdims=True) - chosen)


def moe_buckets(ids, experts):
    flat = np.where((ids < 0) | (ids >= experts), experts, ids).ravel()
    order = np.argsort(flat, kind="stable")
    inverse = np.argsort(order)
    inverse[flat == experts] = -1
    return np.searchsorted(flat[order], np.arange(experts + 1)), order, inverse.reshape(ids.shape)


def moe_combine(residual, expert_out, weights, shared=None, shared_gate=None):
    y = residual.astype(np.float64) + weighted_sum(expert_out, weights)
    if shared is not None:
        scale = 1.0 if shared_gate is None else sigmoid(shared_gate.reshape(-1, 1))
        y = y + scale * shared.astype(np.float64)
    return y


def moe_combine_magnitude(residual, expert_out, weights, shared=None, shared_gate=None):
    common = None if shared is None else np.abs(shared)
    return moe_combine(np.abs(residual), np.abs(expert_out), np.abs(weights), common, shared_gate)
