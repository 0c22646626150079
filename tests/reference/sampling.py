"""Reference of pyturbo.ops.sampling."""

import numpy as np


def argmax(x):
    return np.argmax(x, axis=-1)  # the first of the largest, or the first NaN


def top_logits(x, k):
    """Sort by rank: NaN first, then the larger values, equal ones by index; exponentials in float64."""
    number = np.isnan(x)
    ranked = np.where(number, np.inf, x)
    order = np.array([np.lexsort((np.arange(x.shape[1]), -r, ~nan)) for r, nan in zip(ranked, number)])[:, :k]
    values = np.take_along_axis(x, order, 1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(x.astype(np.float64) - values[:, :1])
    weights[(x == -np.inf) & ~np.isnan(values[:, :1])] = 0
    return values, order, weights.sum(1)


def choose_token(values, tokens, top_k, top_p=1.0, min_p=0.0, temperature=1.0, draw=1.0, forbidden=()):
    """Filter and draw in float64. The second result is how near a sum was to its border, relative to that."""
    kept = [
        (float(number), int(token))
        for number, token in zip(values, tokens)
        if token >= 0 and token not in forbidden and number > -np.inf
    ][:top_k]
    value = np.array([number for number, _ in kept])
    weight = np.exp(value - value[0])
    before = np.cumsum(weight) - weight
    borders = [] if top_p >= 1 else list(before[1:] / (top_p * weight.sum()) - 1)
    few = (before < top_p * weight.sum()) | (top_p >= 1)
    borders += [] if min_p == 0 else list(weight[1:] / min_p - 1)
    few &= weight >= min_p
    drawn = np.cumsum(np.exp((value[few] - value[0]) / temperature))
    borders += list(drawn[:-1] / (draw * drawn[-1]) - 1)
    place = min(np.searchsorted(drawn, draw * drawn[-1]), len(drawn) - 1)
    return np.array(kept, object)[few][place][1], min(map(abs, borders), default=1.0)
