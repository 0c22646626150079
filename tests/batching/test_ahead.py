"""Programs of several conversations that are recorded in slices: nobody waits for all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyturbo
from pyturbo.engine import runner as runners
from pyturbo.engine.sliced import Sliced
from pyturbo.errors import StateError

PAUSES, SECONDS = 50, 0.02  # of a recording that takes longer than a reply may wait


def test_work_in_slices() -> None:
    done: list[int] = []

    def work(pause: Callable[[], None]) -> None:
        for i in range(3):
            done.append(i)
            pause()

    sliced = Sliced(work)
    assert not done
    assert not sliced.advance(0)
    assert done == [0]
    time.sleep(0.02)
    assert done == [0]  # it waits
    assert not sliced.advance(0)
    assert not sliced.advance(0)
    assert sliced.advance(0)
    assert sliced.advance(0)
    assert (done, sliced.error) == ([0, 1, 2], False)


def test_a_long_slice_does_all_of_it() -> None:
    assert Sliced(lambda pause: [pause() for _ in range(100)]).advance(60)


def test_work_that_fails() -> None:
    sliced = Sliced(lambda pause: 1 // 0)
    assert sliced.advance(1)
    assert sliced.error


def test_work_that_is_abandoned() -> None:
    ended: list[bool] = []

    def work(pause: Callable[[], None]) -> None:
        try:
            pause()
        finally:
            ended.append(True)

    sliced = Sliced(work)
    assert not sliced.advance(0)
    sliced.abandon()
    sliced._thread.join(10)
    assert (ended, sliced.done, sliced.error) == ([True], True, False)
    Sliced(work).abandon()  # before it began


@pytest.fixture
def model() -> Iterator[pyturbo.Model]:
    with pyturbo.load(threads=2) as model:
        yield model


def slow(kind: Callable[..., Any], begun: list[int]) -> Callable[..., Any]:
    """Make the recording of a kind of program last, with places where it may wait."""

    def made(*args: Any) -> Any:
        *_, pause = args
        begun.append(threading.get_ident())
        for _ in range(PAUSES if pause else 0):
            time.sleep(SECONDS)
            pause()
        return kind(*args)

    return made


@pytest.mark.parametrize(("others", "kind"), [(1, "BatchGraph"), (4, "BatchGraph"), (8, "MixedGraph")])
def test_replies_go_on_meanwhile(
    model: pyturbo.Model, others: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"Once upon a time number {i}" for i in range(others + 1)]
    want = [model.generate(prompt, 60, temperature=0, ignore_eos=True) for prompt in prompts]
    begun: list[int] = []
    monkeypatch.setattr(runners, kind, slow(getattr(runners, kind), begun))
    with pyturbo.Engine(model, slots=16, piece_ms=5) as engine:
        first = engine.submit(prompts[0], max_tokens=60, temperature=0, ignore_eos=True)
        text = next(first).text
        rest = [
            engine.submit(prompt, max_tokens=60, temperature=0, ignore_eos=True) for prompt in prompts[1:]
        ]
        gaps, last = [], time.perf_counter()
        for chunk in first:
            now = time.perf_counter()
            gaps.append(now - last)
            last, text = now, text + chunk.text
        assert [text, *(stream.result().text for stream in rest)] == [reply.text for reply in want]
        usage = engine.usage
    assert begun
    assert threading.get_ident() not in begun
    assert max(gaps) < PAUSES * SECONDS  # what it would take in one piece
    assert usage.step_tokens == sum(len(reply.tokens) - 1 for reply in want)
    assert usage.steps < usage.step_tokens


def test_the_program_is_used_when_it_is_there(model: pyturbo.Model) -> None:
    with pyturbo.Engine(model) as engine:
        streams = [engine.submit("Once", max_tokens=30, seed=i, ignore_eos=True) for i in range(3)]
        for stream in streams:
            stream.result()
        contexts = (model.runner.context_for(4096),) * 3
        assert not model.runner.lacks_batch(contexts)


def test_an_engine_that_ends_meanwhile(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    monkeypatch.setattr(runners, "BatchGraph", slow(runners.BatchGraph, begun))
    before = threading.active_count()
    with pyturbo.Engine(model, piece_ms=1) as engine:
        streams = [engine.submit("Once", max_tokens=500, ignore_eos=True) for _ in range(2)]
        while not begun:
            time.sleep(0.001)
    with pytest.raises(StateError, match="the engine is closed"):
        streams[0].result()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_recording_that_fails(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(runners, "BatchGraph", fail)
    with pyturbo.Engine(model) as engine:
        streams = [engine.submit("Once", max_tokens=9, ignore_eos=True) for _ in range(2)]
        for stream in streams:
            with pytest.raises(ZeroDivisionError, match="a mistake"):
                stream.result()
