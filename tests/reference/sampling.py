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
