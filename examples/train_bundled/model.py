"""The `qwen3_5_moe` architecture in plain PyTorch, for training: whole sequences, no caches.

Parameters carry the names of the published layout, less `PREFIX`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from delta_rule import delta_rule

PREFIX = "model.language_model."


@dataclass(frozen=True)
class Config:
    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 64
    partial_rotary_factor: float = 0.25
    rope_theta: float = 10000.0
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 256
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    dropout: float = 0.0  # of what a layer adds to the residual stream; in training only


class Norm(nn.Module):
    """RMS norm times ``1 + weight``."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class GatedNorm(nn.Module):
    """RMS norm times weight, gated: of the heads of a delta net."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
        return x * functional.silu(gate.float())


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class DeltaNet(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.keys = c.linear_num_key_heads * c.linear_key_head_dim
        self.values = c.linear_num_value_heads * c.linear_value_head_dim
        channels = 2 * self.keys + self.values
        self.in_proj_qkv = linear(c.hidden_size, channels)
        self.in_proj_z = linear(c.hidden_size, self.values)
        self.in_proj_b = linear(c.hidden_size, c.linear_num_value_heads)
        self.in_proj_a = linear(c.hidden_size, c.linear_num_value_heads)
        self.conv1d = nn.Conv1d(channels, channels, c.linear_conv_kernel_dim, groups=channels, bias=False)
        self.A_log = nn.Parameter(torch.empty(c.linear_num_value_heads).uniform_(1, 16).log())
        # Heads start with decays per step of about 0.2 to 0.99.
        step = torch.empty(c.linear_num_value_heads).uniform_(-6.9, -2.3).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = GatedNorm(c.linear_value_head_dim, c.rms_norm_eps)
        self.out_proj = linear(self.values, c.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        c, (batch, length, _) = self.c, x.shape
        z, b, a = self.in_proj_z(x), self.in_proj_b(x).float(), self.in_proj_a(x).float()
        mixed = self._convolve(self.in_proj_qkv(x))
        q, k, v = mixed.split((self.keys, self.keys, self.values), -1)
        q, k = (p.view(batch, length, c.linear_num_key_heads, -1).float() for p in (q, k))
        v = v.view(batch, length, c.linear_num_value_heads, -1).float()
        q, k = (p * torch.rsqrt(p.square().sum(-1, keepdim=True) + 1e-6) for p in (q, k))
        repeats = c.linear_num_value_heads // c.linear_num_key_heads
        q, k = (p.repeat_interleave(repeats, dim=2) for p in (q * c.linear_key_head_dim**-0.5, k))
        log_decay = -self.A_log.exp() * functional.softplus(a + self.dt_bias)
        y = delta_rule(q, k, v, log_decay, b.sigmoid())
        y = self.norm(y, z.view(batch, length, c.linear_num_value_heads, -1))
        return self.out_proj(y.flatten(2))

    def _convolve(self, x: Tensor) -> Tensor:
        """Every channel with its own four taps, the last one for the present token."""
        taps, length = self.conv1d.weight.squeeze(1), x.shape[1]
        x = functional.pad(x, (0, 0, taps.shape[1] - 1, 0))
        return functional.silu(sum(x[:, i : i + length] * taps[:, i] for i in range(taps.shape[1])))


class Attention(nn.Module):
    """Grouped queries, partly rotated, the output gated by the input."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.q_proj = linear(c.hidden_size, 2 * queries)
        self.k_proj = linear(c.hidden_size, keys)
        self.v_proj = linear(c.hidden_size, keys)
        self.o_proj = linear(queries, c.hidden_size)
        self.q_norm, self.k_norm = (Norm(c.head_dim, c.rms_norm_eps) for _ in "qk")

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        c, (batch, length, _) = self.c, x.shape
        q, gate = self.q_proj(x).view(batch, length, c.num_attention_heads, -1).chunk(2, -1)
        k, v = (p(x).view(batch, length, c.num_key_value_heads, -1) for p in (self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q), cos, sin).to(v.dtype), rotate(self.k_norm(k), cos, sin).to(v.dtype)
        repeats = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(repeats, 2), v.repeat_interleave(repeats, 2)
        q, k, v = (p.transpose(1, 2) for p in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((y * gate.sigmoid()).flatten(2))


def angles(c: Config, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position, [length, 1, rotated dims / 2]."""
    dims = int(c.head_dim * c.partial_rotary_factor)
    frequency = c.rope_theta ** (-torch.arange(0, dims, 2, device=device) / dims)
    angle = torch.arange(length, device=device)[:, None, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    first, second, rest = x.split((half, half, x.shape[-1] - 2 * half), -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


class Mlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """All experts are run for every token and those not chosen weighted with 0: at this size, in one
    product, that is faster than sorting tokens."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        experts, hidden, inner = c.num_experts, c.hidden_size, c.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, inner))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        gate, up = self.gate_up_proj.chunk(2, 1)
        h = functional.silu(functional.linear(x, gate.flatten(0, 1))) * functional.linear(x, up.flatten(0, 1))
        h = h.unflatten(-1, (*weights.shape[-1:], -1)) * weights[..., None].to(h.dtype)
        return functional.linear(h.flatten(-2), self.down_proj.transpose(0, 1).flatten(1))


class Moe(nn.Module):
    """Also returns what training and the report need of the router: its load per expert, its mean
    probabilities, the mean square of its log partition function, and the mass of the chosen."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.k = c.num_experts_per_tok
        self.gate = linear(c.hidden_size, c.num_experts)
        self.experts = Experts(c)
        self.shared_expert = Mlp(c.hidden_size, c.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(c.hidden_size, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            logits = self.gate(x.float())
        p = logits.softmax(-1)
        chosen = p >= p.topk(self.k, -1).values[..., -1:]
        kept = p * chosen
        mass = kept.sum(-1, keepdim=True)
        y = self.experts(x, kept / mass)
        y = y + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)
        load = chosen.float().mean((0, 1)) / self.k
        return y, load, p.mean((0, 1)), logits.logsumexp(-1).square().mean(), mass.mean()


class Layer(nn.Module):
    def __init__(self, c: Config, full: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        if full:
            self.self_attn = Attention(c)
        else:
            self.linear_attn = DeltaNet(c)
        self.mlp, self.full = Moe(c), full
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        h = self.input_layernorm(x)
        x = x + self.dropout(self.self_attn(h, cos, sin) if self.full else self.linear_attn(h))
        y, *router = self.mlp(self.post_attention_layernorm(x))
        return x + self.dropout(y), tuple(router)


class Model(nn.Module):
    """Embedding and output layer are one matrix."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(
            Layer(c, (i + 1) % c.full_attention_interval == 0) for i in range(c.num_hidden_layers)
        )
        self.dropout = nn.Dropout(c.dropout)
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        for name, p in self.named_parameters():
            if p.dim() > 1 and "conv1d" not in name:
                last = name.endswith(("out_proj.weight", "o_proj.weight", "down_proj", "down_proj.weight"))
                nn.init.normal_(p, std=0.04 / (2 * c.num_hidden_layers) ** (0.5 * last))

    def forward(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """ids [batch, length], length a multiple of 64 -> the states that go into the output layer, and
        of the router the values of `Moe`, stacked over layers."""
        cos, sin = angles(self.c, ids.shape[1], ids.device)
        x, routers = self.dropout(self.embed_tokens(ids)), []
        for layer in self.layers:
            x, router = layer(x, cos, sin)
            routers.append(router)
        return self.norm(x), tuple(torch.stack(values) for values in zip(*routers))

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Nats per token of the targets that are not -1."""
        logits = functional.linear(x, self.embed_tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-1)
