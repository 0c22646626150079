"""Packed checkpoints for tests of streaming, and runs of them that can be compared."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyturbo
from pyturbo._device import device_traits
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.errors import AllocationError
from pyturbo.model import Model, default_model
from pyturbo.placement import streamed_runner
from pyturbo.streaming import Policy
from tiny_configs import MODELS, TinyModel
from tiny_models import write_hf, write_mlx

#: Devices that use mapped files in place; others copy them once.
IN_PLACE = [name for name in pyturbo.devices() if device_traits(name).host_memory != "none"]


def write_packed(folder: Path, name: str = "qwen3_5_moe") -> tuple[Path, Path]:
    """Write a tiny checkpoint and its packed copy; return both paths."""
    source = write_mlx(MODELS[name], folder / "source")
    pyturbo.pack(source, folder / "packed")
    return source, folder / "packed"


def write_large(folder: Path, megabytes: int = 150) -> Path:
    """Write a packed checkpoint whose experts have about so many megabytes, with a tokenizer."""
    experts, inner, hidden = 32, 256, 384
    layers = max(1, round(megabytes * 1e6 / (experts * 3 * inner * hidden * 4)))
    small = MODELS["qwen3_moe"]
    sizes = {
        "num_hidden_layers": layers,
        "num_experts": experts,
        "moe_intermediate_size": inner,
        "hidden_size": hidden,
        "mlp_only_layers": [],
        "vocab_size": 4096,
        "max_position_embeddings": 8192,
    }
    model: TinyModel = replace(small, config=small.config | sizes)
    source = write_hf(model, folder / "large")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(default_model() / name, source / name)
    pyturbo.pack(source, folder / "large-packed")
    shutil.rmtree(source)
    return folder / "large-packed"


def streamed(path: Path, device: str, slots: int, **policy: object) -> Model:
    """Load a packed checkpoint with memory for `slots` experts of each size, whatever else it takes."""
    opened = pyturbo.Device(device)
    with open_checkpoint(path) as checkpoint:
        assert isinstance(checkpoint, PackedCheckpoint)
        files = checkpoint.record_files()
        sizes = {file.stride for file in files}
        total = sum(file.experts * file.stride for file in files)
        least = min(sum(file.experts for file in files if file.stride == size) for size in sizes)
        runner = streamed_runner(checkpoint, opened, total * slots // least, Policy(**policy))
        return Model(runner, checkpoint.config, checkpoint.tokenizer, checkpoint.sampling)


def least_memory(path: str | Path, policy: Policy | None = None) -> int:
    """Return the least memory that a model can be loaded with, as an error states it."""
    try:
        pyturbo.load(path, "cpu", memory=1, policy=policy).close()
    except AllocationError as error:
        message = str(error)
    found = re.search(r"at least (\d+) MB for", message)
    assert found is not None, message
    return int(found[1]) * 10**6
