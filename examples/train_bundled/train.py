"""Trains the bundled model on one GPU, in pieces: a later call goes on where the last one stopped.

python train.py CORPUS TOKENIZER WORK --steps 6000 --minutes 9

WORK/checkpoint.pt is the state between calls, WORK/log.jsonl the curve; WORK/weights.safetensors
holds the parameters for export.py: matrices in bfloat16, the small rest in float32.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

import data
from model import PREFIX, Config, Model
from quantise import quantised

LENGTH = 512
BALANCE, Z_LOSS = 0.01, 1e-4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("work", type=Path)
    parser.add_argument("--steps", type=int, default=6000, help="of the whole training")
    parser.add_argument("--stop", type=int, help="end this call after so many steps in all")
    parser.add_argument("--minutes", type=float, default=9.0, help="end this call after so long")
    parser.add_argument("--batch", type=int, default=64, help="windows of 512 tokens in a step")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="the highest learning rate")
    parser.add_argument("--quantised", type=float, default=0.2, help="part of the steps with 4-bit weights")
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


def learning_rate(step: int, steps: int, highest: float) -> float:
    """A short rise, then half a cosine down to a fiftieth."""
    if step < 200:
        return highest * (step + 1) / 200
    part = (step - 200) / max(1, steps - 200)
    return highest * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * part)))


def optimiser(model: Model) -> torch.optim.AdamW:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=torch.cuda.is_available())


def objective(model: Model, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """What is minimised, and the part of it that is the loss of the text."""
    with torch.autocast(inputs.device.type, torch.bfloat16):
        x, (load, mean_p, z, _) = model(inputs)
        text = model.loss(x, targets)
    experts = load.shape[-1]
    balance = experts * (load.detach() * mean_p).sum(-1).mean()
    return text + BALANCE * balance + Z_LOSS * z.mean(), text


@torch.no_grad()
def held_out(model: Model, inputs: Tensor, targets: Tensor) -> float:
    """Nats per token, in the arithmetic of training."""
    model.eval()
    total = 0.0
    for rows in torch.arange(len(inputs), device=inputs.device).split(128):
        eager = torch.compiler.set_stance("force_eager")
        with eager, torch.autocast(inputs.device.type, torch.bfloat16):
            x, _ = model(inputs[rows])
            count = int((targets[rows] >= 0).sum())
            total += float(model.loss(x, targets[rows])) * count
    model.train()
    return total / int((targets >= 0).sum())


class Batches:
    """The batch of any step: epochs follow one another, each shuffled with its number for a seed."""

    def __init__(self, documents: list[np.ndarray], size: int, device: str) -> None:
        self.documents, self.size, self.device = documents, size, device
        self.number, self.first = -1, 0
        self.windows = torch.empty(0, LENGTH + 1)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        while step - self.first >= len(self.windows) // self.size:
            self.first += len(self.windows) // self.size
            self.number += 1
            windows = data.epoch(self.documents, LENGTH, self.number).astype(np.int32)
            self.windows = torch.from_numpy(windows).to(self.device)
        at = (step - self.first) * self.size
        rows = self.windows[at : at + self.size].long()
        return rows[:, :-1], rows[:, 1:]


def save_weights(model: Model, path: Path) -> None:
    """In the published layout: matrices in bfloat16, the small rest in float32."""
    tensors = {}
    for name, p in model.named_parameters():
        small = p.dim() == 1 or "conv1d" in name
        tensors[PREFIX + name] = p.detach().cpu().to(torch.float32 if small else torch.bfloat16).contiguous()
    save_file(tensors, path, {"format": "pt"})


def main() -> None:
    args, began = arguments(), time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    documents = data.tokens(data.training_stories(args.corpus), tokenizer)
    print(f"{len(documents)} stories, {sum(map(len, documents))} tokens", flush=True)
    tests = {}
    for name, texts in data.held_out_stories(args.corpus).items():
        padded = data.padded(data.tokens(texts, tokenizer), LENGTH)
        tests[name] = tuple(torch.from_numpy(part).to(device) for part in padded)
    batches = Batches(documents, args.batch, device)

    model = Model(Config(dropout=args.dropout)).to(device)
    adam = optimiser(model)
    checkpoint, first = args.work / "checkpoint.pt", 0
    if checkpoint.exists():
        saved: dict[str, Any] = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["adam"])
        first = saved["step"]
    if device == "cuda":
        for layer in model.layers:
            layer.compile()
        model.loss = torch.compile(model.loss)  # type: ignore[method-assign]
    print(f"step {first} after {time.monotonic() - began:.0f} s", flush=True)

    stop = min(args.stop or args.steps, args.steps)
    log = (args.work / "log.jsonl").open("a")
    losses: list[Tensor] = []
    step, since = first, time.monotonic()
    while step < stop and time.monotonic() - began < 60 * args.minutes:
        four_bit = step >= args.steps * (1 - args.quantised)
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.rate)
        with quantised(model, four_bit):
            whole, text = objective(model, *batches(step))
            whole.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        losses.append(text.detach())
        step += 1
        if step % 250 == 0 or step == stop or step == first + 20:
            record = {"step": step, "tokens": step * args.batch * LENGTH, "epoch": batches.number,
                      "train": round(float(torch.stack(losses).mean()), 4)}  # fmt: skip
            record["tokens_per_s"] = round(len(losses) * args.batch * LENGTH / (time.monotonic() - since))
            if step % 500 == 0 or step == stop:
                for name, test in tests.items():
                    record[name] = round(held_out(model, *test), 4)
                    with quantised(model):
                        record[f"{name}_4bit"] = round(held_out(model, *test), 4)
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(record, f"{time.monotonic() - began:.0f} s", flush=True)
            losses, since = [], time.monotonic()
    torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "step": step}, checkpoint)
    save_weights(model, args.work / "weights.safetensors")
    print(f"stopped at step {step}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
