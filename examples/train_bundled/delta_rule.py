"""The gated delta rule over whole sequences, chunk by chunk.

Per head, with a state S [dk, dv] of zeros at first, a token does: S <- g S; S <- S + k (beta (v - S^T k))^T;
o = S^T q. Within a chunk of 64 tokens that is a triangular system, so that only chunks follow one another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 64


class UnitLowerInverse(torch.autograd.Function):
    """``(I + A)^-1`` of strictly lower triangular matrices, by inverting blocks on the diagonal and
    joining pairs of them: [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        n = a.shape[-1]
        place = torch.arange(n, device=a.device)
        inverse = torch.eye(n, device=a.device, dtype=a.dtype).expand_as(a)
        size = 1
        while size < n:
            block = place // size
            joins = (block[:, None] % 2 == 1) & (block[None, :] == block[:, None] - 1)
            inverse = inverse - inverse @ (a * joins) @ inverse
            size *= 2
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        transposed = inverse.mT
        return -(transposed @ grad @ transposed).tril(-1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """q, k [batch, length, heads, dk], v [batch, length, heads, dv], log_decay, beta [batch, length, heads]
    -> [batch, length, heads, dv], all float32. Keys have unit length, queries are scaled."""
    with torch.autocast(q.device.type, enabled=False):
        return _delta_rule(*(_chunks(x) for x in (q, k, v, log_decay[..., None], beta[..., None])))


def _chunks(x: Tensor) -> Tensor:
    """[batch, length, heads, n] -> [batch, heads, chunks, 64, n]."""
    return x.unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2, 4)


def _delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    total = log_decay.cumsum(-2)
    # Upper triangle first made 0: exp of its large sums would overflow.
    decay = (total - total.mT).tril().exp().tril()
    a = (beta * (k @ k.mT) * decay).tril(-1)
    inverse = UnitLowerInverse.apply(a)
    u = inverse @ (beta * v)
    w = inverse @ (beta * total.exp() * k)
    inner = (q @ k.mT) * decay
    q_decayed = q * total.exp()
    k_left = k * (total[..., -1:, :] - total).exp()
    kept = total[..., -1:, :].exp()
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    outputs = []
    for i in range(q.shape[2]):
        new = u[:, :, i] - w[:, :, i] @ state
        outputs.append(q_decayed[:, :, i] @ state + inner[:, :, i] @ new)
        state = kept[:, :, i] * state + k_left[:, :, i].mT @ new
    y = torch.stack(outputs, 2)  # [batch, heads, chunks, 64, dv]
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)
