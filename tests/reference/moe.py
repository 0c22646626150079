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


def route_grouped(logits, bias, k, groups=1, top_groups=1, scale=1.0, normalize=True):
    scores = sigmoid(logits)
    ids = np.empty((len(logits), k), np.int64)
    for t, choices in enumerate(scores + bias.astype(np.float64)):
        runs = np.array_split(np.arange(len(choices)), groups)
        sums = [np.sort(choices[run])[-2:].sum() for run in runs]
        kept = np.concatenate(
            [runs[g] for g in sorted(np.argsort(-np.array(sums), kind="stable")[:top_groups])]
        )
        ids[t] = kept[np.argsort(-choices[kept], kind="stable")[:k]]
    weights = np.take_along_axis(scores, ids, 1)
    return ids, scale * (weights / weights.sum(axis=1, keepdims=True) if normalize else weights)


def choice_gap(logits, bias, groups):
    """The smallest distance of two sums of groups, or of two choices, of one token."""
    choices = sigmoid(logits) + bias.astype(np.float64)
    sums = np.sort(choices.reshape(len(logits), groups, -1))[..., -2:].sum(axis=-1)
    return min(np.diff(np.sort(each), axis=1).min(initial=1.0) for each in (choices, sums))


def find_slots(ids, table, counts):
    """The counts after these choices, and how many of the chosen experts have no slot."""
    known = ids[(ids >= 0) & (ids < len(table))]
    return counts + np.bincount(known, minlength=len(table)), np.sum(table[np.unique(known)] < 0)


def bucket_accumulate(out, rows, tokens, weights):
    total = out.astype(np.float64)
    for row, token, weight in zip(rows, tokens, weights):
        if 0 <= token < len(total):
            total[token] += np.float64(weight) * row
    return total
