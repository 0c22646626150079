"""What a weight becomes in the 4-bit file, as float again: MLX's affine quantisation in groups of 64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

GROUP = 64


def bits_of(name: str) -> int:
    """Of a matrix: 8 for the embedding, which is the output layer too, and for the two gates."""
    eight = name.endswith(("embed_tokens.weight", "mlp.gate.weight", "shared_expert_gate.weight"))
    return 8 if eight else 4


def affine(weight: Tensor, bits: int) -> Tensor:
    """Quantised and back. Scales and biases are bfloat16, as the weight is before."""
    w = weight.bfloat16().float().unflatten(-1, (-1, GROUP))
    low, high = w.amin(-1, keepdim=True), w.amax(-1, keepdim=True)
    steps = 2**bits - 1
    scale = ((high - low) / steps).clamp(min=1e-7)
    negative = low.abs() > high.abs()
    scale = torch.where(negative, scale, -scale)
    edge = torch.where(negative, low, high)
    zero = (edge / scale).round()
    scale = torch.where(zero != 0, edge / zero, scale)
    bias = torch.where(zero != 0, edge, 0)
    codes = ((w - bias) / scale).round().clamp(0, steps)
    return (codes * scale.bfloat16().float() + bias.bfloat16().float()).flatten(-2)


def as_stored(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters as the file will hold them, in float32."""
    stored: dict[str, Tensor] = {}
    matrices: dict[int, list[str]] = {4: [], 8: []}
    for name, p in parameters.items():
        if name.endswith("A_log"):
            stored[name] = p
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            stored[name] = (1 + p).bfloat16().float() - 1
        elif p.dim() == 1 or "conv1d" in name:
            stored[name] = p.bfloat16().float()
        else:
            matrices[bits_of(name)].append(name)
    for bits, names in matrices.items():  # all of them at once: groups do not know where they come from
        parts = [parameters[name] for name in names]
        flat = affine(torch.cat([p.flatten() for p in parts]), bits)
        pieces = flat.split([p.numel() for p in parts])
        stored |= {name: piece.view_as(p) for name, piece, p in zip(names, pieces, parts)}
    return stored


@contextmanager
def quantised(model: nn.Module, active: bool = True) -> Iterator[None]:
    """Within, parameters have the values of the file. Their gradients are taken for those of the exact ones
    (straight through): a step of the optimiser after it moves these."""
    exact = {name: p.data for name, p in model.named_parameters()}
    stored = as_stored(exact) if active else exact
    for name, p in model.named_parameters():
        p.data = stored[name]
    try:
        yield
    finally:
        for name, p in model.named_parameters():
            p.data = exact[name]
