"""A checkpoint through transformers: float32, eager attention, the PyTorch code of every operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from outputs import Outputs, stacked
from transformers import AutoModelForCausalLM


def forward(folder: Path, tokens: np.ndarray) -> Outputs:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model, info = loaded
    for kind in ("missing_keys", "mismatched_keys"):
        if info[kind]:
            raise ValueError(f"{folder}: {kind}: {sorted(info[kind])}")
    model.eval()
    layers: list[np.ndarray] = []
    routers: list[np.ndarray] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda _module, _inputs, out: layers.append(_array(out)))
        if hasattr(layer.mlp, "experts"):
            router = layer.mlp.router if hasattr(layer.mlp, "router") else layer.mlp.gate
            router.register_forward_hook(
                lambda module, inputs, _out: routers.append(_array(_logits(module, inputs[0])))
            )
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    return Outputs(_array(logits), stacked(layers, len(tokens)), stacked(routers, len(tokens)))


def _logits(router: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, router.weight, getattr(router, "bias", None))


def _array(value: Any) -> np.ndarray:
    tensor = value[0] if isinstance(value, tuple) else value
    return tensor.detach().float().numpy()
