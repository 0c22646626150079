"""Float64 references of pyturbo.ops.norm."""

import numpy as np

from reference.activation import silu


def rms_norm(x, weight, eps):
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf / inf
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight.astype(np.float64)


head_rms_norm = rms_norm  # of each head of [tokens, heads, dim]


def gated_rms_norm(x, z, weight, eps):
    return rms_norm(x, weight, eps) * silu(z)


def l2_norm(x, eps):
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + eps)


def qk_norm(q, k, eps=1e-6):
    return l2_norm(q, eps) / np.sqrt(q.shape[-1]), l2_norm(k, eps)
