"""Reference of pyturbo._sampling: every step over sorted float64 probabilities."""

import numpy as np

MASK = 2**64 - 1


def log_softmax(logits):
    x = logits.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def adjusted(logits, tokens, repetition=1.0, presence=0.0, frequency=0.0, bias=(), allowed=None, dry=()):
    """The logits after mask, bias and penalties; `dry` are pairs of tokens and their DRY penalties."""
    x = logits.astype(np.float64)
    if allowed is not None:
        x[~allowed] = -np.inf
    for token, value in dict(bias).items():
        x[token] += value
    for token in set(tokens):
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
        x[token] -= presence + frequency * list(tokens).count(token)
    for token, penalty in dict(dry).items():
        x[token] -= penalty
    return x.astype(np.float32)


def dry_penalties(tokens, breakers, multiplier, base, allowed_length):
    """By token: what it loses for the longest repetition that it would continue."""
    tokens, breakers = list(tokens), [list(breaker) for breaker in breakers]
    start = 0  # after the breaker that begins last, of several the longest
    for begin in range(len(tokens)):
        found = [len(b) for b in breakers if tokens[begin : begin + len(b)] == b]
        start = begin + max(found) if found else start
    penalties = {}
    for length in range(allowed_length, len(tokens) - start + 1):
        last = tokens[len(tokens) - length :]
        for end in range(length, len(tokens)):
            if tokens[end - length : end] == last and [tokens[end]] not in breakers:
                penalties[tokens[end]] = multiplier * base ** (length - allowed_length)
    return penalties


def ranked(logits):
    """Allowed tokens, the most likely first, equal ones by token."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    return order[logits[order] > -np.inf]


def probabilities(logits, tokens, temperature=1.0):
    x = logits[tokens].astype(np.float64)
    weights = np.exp((x - x.max()) / temperature)
    return weights / weights.sum()


def kept(logits, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=0.0, xtc_threshold=None):
    """What the filters leave, by rank, and the least distance of a number from a border."""
    tokens = ranked(logits)
    margin = np.inf
    if top_n_sigma:
        x = logits[tokens].astype(np.float64)
        least = x.max() - top_n_sigma * x.std()
        others = x[x < x.max()]  # equal logits are on the same side of any border
        margin = np.abs(others - least).min(initial=np.inf) / max(1.0, np.abs(x).max())
        tokens = tokens[x >= least]
    if top_k:
        tokens = tokens[:top_k]
    if typical_p < 1:
        tokens, distance = typical(logits, tokens, typical_p)
        margin = min(margin, distance)
    if top_p < 1:
        reached = np.cumsum(probabilities(logits, tokens))
        margin = min(margin, np.abs(reached - top_p).min())
        tokens = tokens[: np.argmax(reached >= top_p) + 1]
    if min_p:
        p = probabilities(logits, tokens)
        others = p[logits[tokens] < logits[tokens[0]]]
        margin = min(margin, np.abs(others / p[0] - min_p).min(initial=np.inf))
        tokens = tokens[p >= min_p * p[0]]
    if xtc_threshold is not None:
        p = probabilities(logits, tokens)
        margin = min(margin, np.abs(p - xtc_threshold).min() if xtc_threshold else np.inf)
        tokens = tokens[max(0, int((p >= xtc_threshold).sum()) - 1) :]
    return tokens, margin


def typical(logits, tokens, share):
    """Of ranked tokens those nearest to the entropy, and the least distance of a number from a border."""
    p = probabilities(logits, tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = -np.log(p)
    entropy = (p[p > 0] * information[p > 0]).sum()
    distances = np.abs(information - entropy)
    order = np.lexsort((tokens, distances))
    reached = np.cumsum(p[order])
    last = int(np.argmax(reached >= share))
    others = logits[tokens] != logits[tokens[order[last]]]  # equal logits are equally far in any rounding
    gaps = np.abs(distances - distances[order[last]])[others]
    margin = min(np.abs(reached - share).min(), gaps.min(initial=np.inf) / 10)
    keeps = np.zeros(len(tokens), bool)
    keeps[order[: last + 1]] = True
    return tokens[keeps], margin


def uniform(seed, draw):
    """The number of a draw, counted from 1: splitmix64's finaliser over the seed, then over seed and draw."""

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    return ((mix(mix(seed) + draw * 0x9E3779B97F4A7C15 & MASK) >> 11) + 1) / 2**53
