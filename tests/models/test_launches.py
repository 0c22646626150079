"""How many launches and waits a step of one token takes, layer by layer, so that they grow only on purpose.

The model has the structure of Qwen3.6-35B-A3B. Does not catch: how long a launch takes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import pyturbo
from pyturbo.bench.gpu.model import QUICK
from pyturbo.bench.gpu.random_model import random_runner

#: Launches and waits of a layer with a delta net and of one with attention.
JOINED = {"f16": ((10, 8), (12, 10)), "turbo4": ((10, 8), (17, 11))}
SINGLE = {"f16": ((20, 13), (24, 16)), "turbo4": ((20, 13), (27, 16))}

#: What a step of all layers of Qwen3.6-35B-A3B may take.
LAYERS, MOST_LAUNCHES, MOST_WAITS = 40, 520, 360


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


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_launches_and_waits_of_a_layer(device: pyturbo.Device, kv: str) -> None:
    launches, waits = count(device, kv)
    expected = (JOINED if device.traits.fused else SINGLE)[kv]
    for layer, (own, own_waits) in ((2, expected[0]), (3, expected[1])):
        assert launches[f"layers.{layer}"] == own
        assert waits[f"layers.{layer}"] == own_waits
    (first, first_waits), (second, second_waits) = expected
    ends = 2 * (device.traits.top_logits > 0)  # the largest logits
    assert launches.total() == 3 * first + second + 3 + ends
    assert waits.total() == 3 * first_waits + second_waits + 2 + ends


def test_launches_and_waits_of_all_layers(device: pyturbo.Device) -> None:
    if not device.traits.fused:
        pytest.skip("launches are not joined")
    launches, waits = count(device, "f16", LAYERS)
    assert len([layer for layer in launches if layer.startswith("layers.")]) == LAYERS
    assert launches.total() <= MOST_LAUNCHES
    assert waits.total() <= MOST_WAITS
