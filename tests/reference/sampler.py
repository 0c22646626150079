"""Reference of pyturbo._sampling: every step over sorted float64 probabilities."""

import numpy as np

MASK = 2**64 - 1


def log_softmax(logits):
    x = logits.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def penalised(logits, tokens, penalty):
    x = logits.astype(np.float64)
    for token in set(tokens):
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    return x.astype(np.float32)


def ranked(logits):
    """Allowed tokens, the most likely first, equal ones by token."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    return order[logits[order] > -np.inf]


def probabilities(logits, tokens, temperature=1.0):
    x = logits[tokens].astype(np.float64)
    weights = np.exp((x - x.max()) / temperature)
    return weights / weights.sum()


def kept(logits, top_k, top_p, min_p):
    """What the filters leave, by rank, and the least distance of a probability from a border."""
    tokens = ranked(logits)
    margin = np.inf
    if top_k:
        tokens = tokens[:top_k]
    if top_p < 1:
        reached = np.cumsum(probabilities(logits, tokens))
        margin = np.abs(reached - top_p).min()
        tokens = tokens[: np.argmax(reached >= top_p) + 1]
    if min_p:
        p = probabilities(logits, tokens)
        others = p[logits[tokens] < logits[tokens[0]]]  # equal logits are on the same side of any border
        margin = min(margin, np.abs(others / p[0] - min_p).min(initial=np.inf))
        tokens = tokens[p >= min_p * p[0]]
    return tokens, margin


def uniform(seed, draw):
    """The number of a draw, counted from 1: splitmix64's finaliser over the seed, then over seed and draw."""

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    return ((mix(mix(seed) + draw * 0x9E3779B97F4A7C15 & MASK) >> 11) + 1) / 2**53
