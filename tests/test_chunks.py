"""How many tokens of a prompt are read at once.

Models have their real sizes but no weights. That larger chunks are faster on a real GPU cannot be seen here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyturbo
from pyturbo._traits import Traits
from pyturbo.bench.gpu.model import Plan
from pyturbo.bench.gpu.random_model import BlankWeights, runner_of
from pyturbo.bench.peers import random_moe
from pyturbo.engine import graph
from pyturbo.engine.chunks import least_chunk, reading_traits
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session
from pyturbo.layers.kv_cache import kv_format
from pyturbo.model import default_model

METAL = Traits(512, 1, 32, 0, 0, 32, 16, 64, 0, 64, True, "pages")
CUDA = METAL._replace(chunk=2048)
CPU = METAL._replace(chunk=256, bucket_tokens=2)
GIB = 1 << 30


class Like(pyturbo.Device):
    """A device with the traits and the working set of another."""

    traits = CPU
    working_set: int | None = None


@pytest.fixture(scope="module")
def mixtures() -> dict[tuple[int, int], Runner]:
    """Mixtures by the number of experts, and those that a token has."""
    device = pyturbo.Device("cpu", threads=1)
    shapes = [(8, 2), (128, 8), (256, 8), (512, 10), (512, 2)]
    return {
        (experts, chosen): runner_of(
            device,
            random_moe.config(replace(Plan.shape, layers=4, experts=experts, chosen=chosen)),
            BlankWeights(),
            "f16",
        )
        for experts, chosen in shapes
    }


def chunk(
    runner: Runner,
    traits: Traits,
    working_set: int | None = 64 * GIB,
    kv: str = "f16",
    *,
    streamed: bool = False,
) -> int:
    device = Like("cpu", threads=1)
    device.traits, device.working_set = traits, working_set
    found = reading_traits(runner.network, device, kv_format(kv), streamed=streamed)
    assert found._replace(chunk=traits.chunk) == traits
    return found.chunk


@pytest.mark.parametrize(
    ("experts", "on_metal"),
    [((8, 2), 512), ((128, 8), 512), ((256, 8), 1024), ((512, 10), 2048), ((512, 2), 2048)],
)
def test_experts_of_a_chunk_have_half_a_tile(mixtures, experts: tuple[int, int], on_metal: int) -> None:
    runner = mixtures[experts]
    assert chunk(runner, METAL) == on_metal
    assert chunk(runner, CUDA) == 2048
    assert chunk(runner, CPU) == 256
    assert chunk(runner, METAL, kv="turbo4") == 512


def test_results_between_launches_have_a_share_of_the_working_set(mixtures) -> None:
    sizes = None, GIB, 16 * GIB, 24 * GIB
    assert [chunk(mixtures[512, 2], METAL, size) for size in sizes] == [2048, 512, 1024, 2048]
    assert chunk(mixtures[256, 8], METAL, 20 * GIB) == 1024  # of a Mac of 32 GB


def test_streamed_experts_are_read_once_for_more_tokens(mixtures) -> None:
    runner = mixtures[128, 8]
    assert chunk(runner, METAL, streamed=True) == 1024
    assert chunk(runner, CPU, streamed=True) == 512
    assert chunk(runner, CUDA, streamed=True) == 2048
    assert chunk(runner, METAL, kv="turbo4", streamed=True) == 512
    assert chunk(mixtures[512, 10], METAL, streamed=True) == 2048
    assert [least_chunk(traits, streamed=True) for traits in (METAL, CPU, CUDA)] == [1024, 512, 2048]
    assert least_chunk(METAL, streamed=False) == 512


def test_models_without_experts_have_the_chunk_of_the_device() -> None:
    with pyturbo.load(default_model(), "cpu") as model:
        assert chunk(model.runner, METAL) == 512
        assert model.runner.least_chunk == model.runner.traits.chunk == 256


def test_what_every_token_has_is_kept_for_no_more_than_the_least() -> None:
    with pyturbo.load(default_model(), "cpu") as model:
        runner = model.runner
        runner.traits, runner.least_chunk = runner.traits._replace(chunk=40), 10
        counts = {}
        for output in ("last", "hidden", "all", "layers"):
            with runner.program(512, 100, output) as (counts[output], _):
                pass
    assert counts == {"last": 40, "hidden": 40, "all": 10, "layers": 10}


def test_fewer_tokens_where_a_launch_would_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may read 40 tokens, the device 10 at every position."""
    with pyturbo.load(default_model(), "cpu") as model:
        runner, ids = model.runner, list(range(5, 105))
        want = Session(runner, 512).prefill(ids)
        runner.traits, runner.least_chunk = runner.traits._replace(chunk=40), 10
        assert list(Session(runner, 512).read(ids)) == [40, 80, 100]
        monkeypatch.setattr(graph, "LONGEST", -1.0)
        session = Session(runner, 512)
        assert list(session.read(ids)) == [*range(10, 101, 10)]
        np.testing.assert_allclose(session.logits, want, atol=1e-4 * np.ptp(want))
