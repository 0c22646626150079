"""Streamed experts on the Metal device: round trips of a token, and slots that need several buffers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyturbo
from packed_models import streamed, write_packed
from pyturbo import _native_tests

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_packed(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def plain_reads() -> Iterator[None]:
    yield
    _native_tests.plain_reads()


def logits_of(model: pyturbo.Model) -> list[bytes]:
    session = model.session(32)
    return [session.step(token).tobytes() for token in (3, 77, 5)]


def test_a_layer_with_misses_takes_one_round_trip(paths: tuple[Path, Path]) -> None:
    """Experts of a token arrive one after the other, and are computed together."""
    with streamed(paths[1], "metal", 1000, threads=1) as model:
        session, experts = model.session(32), model.runner.experts
        session.step(1)
        _native_tests.fail_reads("slow", 3)
        most = 0
        for token in (5, 77, 30, 5, 77):
            before = experts.stats()
            soft_metal.reset()
            session.step(token)
            round_trips = soft_metal.counters()["round_trips"]
            misses = [now["misses"] - then["misses"] for now, then in zip(experts.stats(), before)]
            assert round_trips == 1 + sum(missed > 0 for missed in misses)
            most = max(most, *misses)
        assert most > 1


def test_slots_that_do_not_fit_into_one_buffer(paths: tuple[Path, Path]) -> None:
    with pyturbo.load(paths[0], "metal") as model:
        wanted = logits_of(model)
    with streamed(paths[1], "cpu", 1000) as model:
        nbytes = model.runner.experts.nbytes
    soft_metal.set_options(max_buffer_length=nbytes * 3 // 4 // 16384 * 16384)
    with streamed(paths[1], "metal", 1000) as model:
        assert len(model.runner.experts.slabs) == 2
        assert model.runner.experts.nbytes == nbytes
        assert logits_of(model) == wanted
