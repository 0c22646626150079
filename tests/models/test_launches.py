"""How many launches and waits a step of one token takes, layer by layer, so that they grow only on purpose.

The first model has the structure of Qwen3.6-35B-A3B, the others are tiny ones in other formats. Does not
catch: how long a launch takes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from gguf_blocks import both_forms
from gguf_models import BLOCK_MODELS, metadata
from pyturbo.bench.gpu.model import QUICK
from pyturbo.bench.gpu.random_model import random_runner
from pyturbo.checkpoint.gguf_writer import write_gguf
from pyturbo.model import load
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_hf, write_mlx

#: Launches and waits of a layer with a delta net and of one with attention.
JOINED = {"f16": ((10, 8), (12, 10)), "turbo4": ((10, 8), (17, 11))}
SINGLE = {"f16": ((20, 13), (24, 16)), "turbo4": ((20, 13), (27, 16))}

#: What a step of all layers of Qwen3.6-35B-A3B may take.
LAYERS, MOST_LAUNCHES, MOST_WAITS = 40, 520, 360

BOUND = 2e-3  # of the logits' standard deviation, as in test_parity

#: Launches of the last two layers of tiny models, joined and single. The blocks of GGUF files are Q4_K.
OTHERS = {
    "gguf llama": ((9, 9), (14, 14)),
    "gguf qwen3moe": ((11, 11), (19, 19)),
    "gguf qwen35moe": ((12, 13), (20, 24)),
    "gguf deepseek2": ((16, 20), (18, 23)),
    "gguf gpt-oss": ((16, 16), (27, 27)),
    "mlx llama_mxfp4": ((9, 9), (14, 14)),
    "mlx qwen3_5_moe_nvfp4": ((11, 12), (20, 24)),
    "mlx gpt_oss_mxfp4": ((15, 15), (27, 27)),
    "mlx gpt_oss": ((15, 15), (27, 27)),
    "mlx deepseek_v3": ((20, 20), (23, 23)),
    "hf gpt_oss": ((16, 16), (27, 27)),
}


def count(
    device: pyturbo.Device, kv: str, layers: int = QUICK.shape.layers
) -> tuple[Counter[str], Counter[str]]:
    """Return launches and waits by layer."""
    runner = random_runner(device, replace(QUICK.shape, layers=layers), kv, lambda text: None)
    with runner.program(runner.context_for(300), 1, "last") as (_, graph):
        listing = graph.program.listing()
    runner.close()
    layers = [".".join(launch.label.split(".")[:2]) for launch in listing]
    waits = [layer for layer, launch in zip(layers, listing) if launch.waits]
    return Counter(layers), Counter(waits)


def write(name: str, folder: Path) -> Path:
    form, _, model = name.partition(" ")
    if form == "gguf":
        one = BLOCK_MODELS[model]
        return write_gguf(folder / "model.gguf", metadata(one), both_forms(one, ("Q4_K",))[0])[0]
    return (write_mlx if form == "mlx" else write_hf)((MODELS | FP_MODELS)[model], folder)


@pytest.mark.parametrize("name", OTHERS)
def test_launches_of_other_formats(device: pyturbo.Device, tmp_path: Path, name: str) -> None:
    runner = load(write(name, tmp_path), device=device).runner
    with runner.program(runner.context_for(60), 1, "last") as (_, graph):
        labels = [launch.label for launch in graph.program.listing()]
    counts = Counter(label.split(".")[1] for label in labels if label.startswith("layers."))
    joined, single = OTHERS[name]
    assert tuple(counts.values())[-2:] == (joined if device.traits.fused else single)


@pytest.mark.spread
@pytest.mark.parametrize("name", OTHERS)
def test_steps_give_what_a_prompt_gives(device: pyturbo.Device, tmp_path: Path, name: str) -> None:
    """Steps have joined launches where the device has them, prompts have not."""
    model = load(write(name, tmp_path), device=device, kv="f32")
    tokens = [7, 3, 150, 11, 42, 5]
    want = model.logits(np.array(tokens))
    session = model.session(len(tokens))
    for token, row in zip(tokens, want):
        session.step(token)
        assert np.abs(session.logits - row).max() <= BOUND * want.std()


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_launches_and_waits_of_a_layer(device: pyturbo.Device, kv: str) -> None:
    launches, waits = count(device, kv)
    expected = (JOINED if device.traits.fused else SINGLE)[kv]
    for layer, (own, own_waits) in ((2, expected[0]), (3, expected[1])):
        assert launches[f"layers.{layer}"] == own
        assert waits[f"layers.{layer}"] == own_waits
    (first, first_waits), (second, second_waits) = expected
    ends = 3 * (device.traits.top_logits > 0)  # the largest logits, and the next token
    assert launches.total() == 3 * first + second + 3 + ends
    assert waits.total() == 3 * first_waits + second_waits + 2 + ends


def test_launches_and_waits_of_all_layers(device: pyturbo.Device) -> None:
    if not device.traits.fused:
        pytest.skip("launches are not joined")
    launches, waits = count(device, "f16", LAYERS)
    assert len([layer for layer in launches if layer.startswith("layers.")]) == LAYERS
    assert launches.total() <= MOST_LAUNCHES
    assert waits.total() <= MOST_WAITS
