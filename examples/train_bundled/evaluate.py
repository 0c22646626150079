"""Measures trained weights on stories that were not trained on, in float32, before and after quantisation.

python evaluate.py CORPUS TOKENIZER WEIGHTS OUT.json
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

import data
from model import PREFIX, Config, Model
from quantise import quantised

LENGTH = 512


def read(path: Path, device: str) -> Model:
    model = Model(Config()).to(device).eval()
    model.load_state_dict({name.removeprefix(PREFIX): p for name, p in load_file(path, device).items()})
    return model


@torch.no_grad()
def nats(model: Model, inputs: Tensor, targets: Tensor) -> float:
    """Of all targets together."""
    total = 0.0
    for i in range(0, len(inputs), 32):
        x, _ = model(inputs[i : i + 32])
        logits = functional.linear(x, model.embed_tokens.weight).flatten(0, 1)
        total += float(
            functional.cross_entropy(logits, targets[i : i + 32].flatten(), ignore_index=-1, reduction="sum")
        )
    return total


@torch.no_grad()
def routing(model: Model, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Per layer: the share of each expert in all choices, entropy, and the mass of the first 1, 2 and 4."""
    seen: list[Tensor] = []
    hooks = [layer.mlp.gate.register_forward_hook(lambda m, x, y: seen.append(y)) for layer in model.layers]
    real = (targets >= 0).flatten()
    parts: list[list[Tensor]] = [[] for _ in model.layers]
    for i in range(0, len(inputs), 32):
        seen.clear()
        model(inputs[i : i + 32])
        mask = real[i * LENGTH : (i + 32) * LENGTH]
        for part, logits in zip(parts, seen):
            part.append(logits.flatten(0, 1)[mask])
    for hook in hooks:
        hook.remove()
    result: dict[str, Any] = {"load": [], "entropy": [], "mass": []}
    for part in parts:
        p = torch.cat(part).float().softmax(-1)
        first = p.topk(4, -1)
        counts = torch.bincount(first.indices.flatten(), minlength=p.shape[-1])
        result["load"].append([round(float(n) / first.indices.numel(), 4) for n in counts])
        result["entropy"].append(round(float(-(p * p.clamp(min=1e-9).log()).sum(-1).mean()), 3))
        result["mass"].append([round(float(first.values[:, :k].sum(-1).mean()), 3) for k in (1, 2, 4)])
    return result


def main() -> None:
    corpus, tokenizer_path, weights, out = map(Path, sys.argv[1:5])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    model = read(weights, device)
    report: dict[str, Any] = {}
    for name, texts in data.held_out_stories(corpus).items():
        documents = data.tokens(texts, tokenizer)
        inputs, targets = (torch.from_numpy(part).to(device) for part in data.padded(documents, LENGTH))
        count = int((targets >= 0).sum())
        # Of what is predicted: neither the first token of a story nor <|endoftext|> has bytes here.
        size = sum(len(text.encode()) for text in texts)
        size -= sum(len(tokenizer.decode([int(document[0])]).encode()) for document in documents)

        def measured(total: float, count: int = count, size: int = size) -> dict[str, float]:
            return {
                "nats_per_token": round(total / count, 4),
                "perplexity_per_token": round(math.exp(total / count), 3),
                "perplexity_per_byte": round(math.exp(total / size), 4),
                "bits_per_byte": round(total / size / math.log(2), 4),
            }

        report[name] = {"stories": len(texts), "tokens": count, "bytes": size}
        report[name]["float"] = measured(nats(model, inputs, targets))
        with quantised(model):
            for k in (4, 2, 1):
                for layer in model.layers:
                    layer.mlp.k = k
                report[name][f"4-bit, top {k}"] = measured(nats(model, inputs, targets))
            for layer in model.layers:
                layer.mlp.k = 4
            if name == "held_out":
                report["routing"] = routing(model, inputs, targets)
    out.write_text(json.dumps(report, indent=1))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
