"""How replays are divided into command buffers.

Models have their real sizes but no weights: the estimates come from the values of launches alone. That a
real GPU is as fast as they assume cannot be seen here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import pyturbo
from pyturbo.bench.gpu.model import Plan
from pyturbo.bench.gpu.random_model import BlankWeights, runner_of
from pyturbo.bench.peers import random_moe
from pyturbo.engine.runner import Runner
from pyturbo.models import llama, qwen3
from pyturbo.symbols import Launch, Part, Place, symbol

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

CONTEXT = 131_072
FIRST, MOST = 0.005, 0.1  # seconds on an M1

LLAMA_8B = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "attention_bias": False,
    "tie_word_embeddings": False,
}

QWEN3_8B = LLAMA_8B | {
    "model_type": "qwen3",
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
}


@pytest.fixture
def metal() -> Iterator[pyturbo.Device]:
    soft_metal.set_options(recommended_working_set=1 << 35)
    with pyturbo.Device("metal") as device:
        yield device


def runner_35b(device: pyturbo.Device, kv: str = "f16") -> Runner:
    shape = replace(Plan.shape, context=CONTEXT)
    return runner_of(device, random_moe.config(shape), BlankWeights(), kv)


def runner_8b(device: pyturbo.Device, kv: str = "f16") -> Runner:
    return runner_of(device, LLAMA_8B, BlankWeights(), kv, llama.build)


def runner_qwen3_8b(device: pyturbo.Device, kv: str = "f16") -> Runner:
    return runner_of(device, QWEN3_8B, BlankWeights(), kv, qwen3.build)


def divided(runner: Runner, tokens: int, position: int) -> tuple[list[Launch], list[Part]]:
    context = runner.context_for(position + tokens)
    with runner.program(context, tokens, "last") as (_, graph):
        block = runner.allocate(runner.layout(context))
        listing, parts = graph.program.listing(), graph.parts(tokens, block, position)
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(listing)
    return listing, parts


def seconds(parts: list[Part]) -> float:
    return sum(part.seconds for part in parts)


@pytest.mark.parametrize(
    ("make", "position", "count", "read"),
    [(runner_35b, 1024, 2, 1.7e9), (runner_35b, 100_000, 3, 3.8e9), (runner_8b, 1024, 3, 4.7e9)],
)
def test_a_decode_step_has_few_command_buffers(
    metal: pyturbo.Device, make: type, position: int, count: int, read: float
) -> None:
    with closing(make(metal)) as runner:
        _, parts = divided(runner, 1, position)
    assert len(parts) == count
    assert FIRST <= parts[0].seconds < MOST
    assert max(part.seconds for part in parts) <= MOST
    assert seconds(parts) == pytest.approx(read / 60e9, rel=0.15)
    assert soft_metal.counters()["command_buffers"] == 0  # nothing ran


@pytest.mark.parametrize(
    ("make", "launches", "waits", "read"),
    [(runner_35b, 426, 345, 1.67e9 + 2 * 63e6), (runner_qwen3_8b, 330, 329, 4.26e9 + 0.15e9)],
)
def test_figures_of_the_estimates(
    metal: pyturbo.Device, make: type, launches: int, waits: int, read: float
) -> None:
    """Launches, waits and bytes of a token after 1,024 others, as docs/metal.md has them."""
    with closing(make(metal)) as runner:
        listing, parts = divided(runner, 1, 1024)
    assert (len(listing), sum(launch.waits for launch in listing)) == (launches, waits)
    assert seconds(parts) == pytest.approx(read / 60e9, rel=0.03)


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_a_step_with_a_long_context(metal: pyturbo.Device, kv: str) -> None:
    with closing(runner_8b(metal, kv)) as runner:
        near, far = (seconds(divided(runner, 1, position)[1]) for position in (100, 130_000))
    rows = 32 * 2 * 130_000 * 8 * 128 * (2 if kv == "f16" else 0.5)
    assert far - near == pytest.approx(rows / 60e9, rel=0.15)


@pytest.mark.parametrize("make", [runner_35b, runner_8b])
def test_command_buffers_of_a_prompt(metal: pyturbo.Device, make: type) -> None:
    with closing(make(metal)) as runner:
        _, parts = divided(runner, 512, 0)
    alone = [part for part in parts if part.end == part.begin + 1]
    assert all(part.seconds <= MOST for part in parts if part not in alone)
    assert parts[0].seconds < MOST
    # Neighbours would exceed what a command buffer may have, or the first of the two has enough.
    for first, second in pairwise(parts[1:]):
        assert first.seconds >= 0.05 or first.seconds + second.seconds > MOST
    products = 512 * (3.3e9 if make is runner_35b else 7.5e9)
    assert seconds(parts) == pytest.approx(products / 0.5e12, rel=0.3)


def test_chunks_of_a_mixture_are_larger_where_attention_is_short(metal: pyturbo.Device) -> None:
    """Half a tile for each of 256 experts, of which a token has 8, up to some 5,000 keys."""
    with closing(runner_35b(metal)) as runner:
        assert (runner.traits.chunk, runner.least_chunk) == (1024, 512)
        context = runner.context_for(CONTEXT)
        with runner.program(context, 2000, "last") as (count, graph):
            block = runner.allocate(runner.layout(context))
            for position in (0, 3000, 4900, 5100, CONTEXT - 1024):
                found = graph.fitting(count, runner.least_chunk, block, position)
                assert found == (1024 if position < 5000 else 512)
                parts = graph.parts(found, block, position)
                assert found == 512 or max(part.seconds for part in parts) <= MOST


def test_a_launch_that_is_too_long_is_alone(metal: pyturbo.Device) -> None:
    with closing(runner_8b(metal)) as runner:
        listing, parts = divided(runner, 512, CONTEXT - 512)
    long = [part for part in parts if part.seconds > MOST]
    assert {listing[part.begin].kernel.partition("_")[0] for part in long} == {"attention", "affine"}
    assert all(part.end == part.begin + 1 for part in long)
    attention = [part for part in long if listing[part.begin].kernel.startswith("attention")]
    assert len(attention) == 32
    assert attention[0].seconds == pytest.approx(2 * 512 * CONTEXT * 32 * 128 / 0.5e12)


def test_other_devices_have_one_part() -> None:
    with pyturbo.Device("cpu", threads=1) as device:
        program = pyturbo.Program(device, symbols=("count",))
        x = device.empty(64)
        program.add(device.kernel("add"), x, x, x, symbol("count"))
        assert program.parts(count=3) == [Part(0, 1, 0.0)]


# Command buffers as they are committed ---------------------------------------------------------------


def test_long_work_is_cut_into_command_buffers(metal: pyturbo.Device) -> None:
    large = metal.empty(1 << 28)  # of which only the beginning is used
    y = large.view(64, offset=4096)
    program = pyturbo.Program(metal)
    for _ in range(3):
        program.add(metal.kernel("add"), large, large, large, 64)  # 3 GiB: 54 ms
        program.add(metal.kernel("add"), y, y, y, 64)
    parts = program.parts()
    assert [(part.begin, part.end) for part in parts] == [(0, 1), (1, 3), (3, 5), (5, 6)]
    program.run()
    counters = soft_metal.counters()
    assert (counters["command_buffers"], counters["dispatches"]) == (4, 6)
    assert counters["barriers"] == 2  # command buffers wait for each other anyway
    small = pyturbo.Program(metal)
    for _ in range(600):
        small.add(metal.kernel("add"), y, y, y, 64)
    small.run()
    assert soft_metal.counters()["command_buffers"] == 5


def test_launches_over_memory_of_the_host_are_cut(metal: pyturbo.Device) -> None:
    large = metal.empty(1 << 28)
    array = np.ones(64, np.float32)
    program = pyturbo.Program(metal, blocks=("block",))
    for _ in range(3):
        program.add(metal.kernel("add"), large, large, large, 64)
    place, y = Place("block", 0, 256), large.view(64)
    program.add(metal.kernel("add"), place, y, place, 64)
    program.run([metal.buffer(array)])
    assert soft_metal.counters()["command_buffers"] == 4
    assert array.tolist() == [1] * 64


def test_windows_over_the_same_memory() -> None:
    soft_metal.set_options(max_buffer_length=1 << 29)
    with pyturbo.Device("metal") as device:
        memory = device.empty(1 << 28)  # 1 GiB, shown by windows
        parts = [memory.view(1 << 26, offset=at << 28) for at in range(4)]
        for part in parts:
            part.numpy()[:1] = 1
        program = pyturbo.Program(device)
        for part, target in zip(parts * 20, parts[1:] + parts * 20):
            program.add(device.kernel("add"), part, part, target, 64)  # 768 MiB: 13 ms
        soft_metal.reset()
        for _ in range(2):
            program.run()
        assert soft_metal.counters()["command_buffers"] == 2 * len(program.parts())
        assert len(program.parts()) > 10
