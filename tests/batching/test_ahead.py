"""Programs of several conversations that are recorded in slices: nobody waits for all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyturbo
from pyturbo.engine import runner as runners
from pyturbo.engine.ahead import Ahead
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
    assert (done, sliced.error) == ([0, 1, 2], None)


def test_a_long_slice_does_all_of_it() -> None:
    assert Sliced(lambda pause: [pause() for _ in range(100)]).advance(60)


def test_work_that_fails() -> None:
    sliced = Sliced(lambda pause: 1 // 0)
    assert sliced.advance(1)
    assert isinstance(sliced.error, ZeroDivisionError)


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
    assert (ended, sliced.done, sliced.error) == ([True], True, None)
    Sliced(work).abandon()  # before it began


@pytest.fixture
def model() -> Iterator[pyturbo.Model]:
    with pyturbo.load(threads=2) as model:
        yield model


def slow(
    kind: Callable[..., Any], pauses: list[bool], times: list[tuple[float, float]] | None = None
) -> Callable[..., Any]:
    """Make the recording of a kind of program last; note whether it may wait, its begin and its end."""

    def made(*args: Any) -> Any:
        *_, pause = args
        pauses.append(pause is not None)
        begin = time.perf_counter()
        try:
            for _ in range(PAUSES):
                time.sleep(SECONDS)
                if pause:
                    pause()
        finally:  # it may be abandoned
            if times is not None:
                times.append((begin, time.perf_counter()))
        return kind(*args)

    return made


def submitted(engine: pyturbo.Engine, prompts: list[str], tokens: int) -> list[pyturbo.Stream]:
    """Ask for replies that begin together."""
    with engine._scheduler._changed:
        return [
            engine.submit(prompt, max_tokens=tokens, temperature=0, ignore_eos=True) for prompt in prompts
        ]


@pytest.mark.parametrize(("others", "kind"), [(1, "BatchGraph"), (4, "BatchGraph"), (8, "MixedGraph")])
def test_replies_go_on_meanwhile(
    model: pyturbo.Model, others: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [f"Once upon a time number {i}" for i in range(others + 1)]
    want = [model.generate(prompt, 60, temperature=0, ignore_eos=True) for prompt in prompts]
    pauses: list[bool] = []
    times: list[tuple[float, float]] = []
    monkeypatch.setattr(runners, kind, slow(getattr(runners, kind), pauses, times))
    # On a busy machine steps, and so slices, would take as long as the whole recording.
    monkeypatch.setattr(
        Ahead, "step_seconds", property(lambda ahead: 0.0, lambda ahead, seconds: None), raising=False
    )
    with pyturbo.Engine(model, slots=16, piece_ms=5) as engine:
        (first,) = submitted(engine, prompts[:1], 60)
        text = next(first).text
        rest = submitted(engine, prompts[1:], 60)
        arrived = []
        for chunk in first:
            arrived.append(time.perf_counter())
            text += chunk.text
        assert [text, *(stream.result().text for stream in rest)] == [reply.text for reply in want]
        usage = engine.usage
    assert pauses
    assert all(pauses)
    begin, end = times[0]
    assert sum(begin < each < end for each in arrived) >= 5  # in one piece there would be none
    assert usage.step_tokens == sum(len(reply.tokens) - 1 for reply in want)
    assert usage.steps < usage.step_tokens


def test_the_program_is_used_when_it_is_there(model: pyturbo.Model) -> None:
    with pyturbo.Engine(model) as engine:
        streams = submitted(engine, ["Once", "Twice", "Never"], 60)
        contexts = (context_of_replies(model),) * 3
        for stream in streams:
            stream.result()
    assert not model.runner.lacks_batch(contexts)
    assert model.runner.longest_batch((*contexts, 7)) == 3
    assert model.runner.longest_batch((7, *contexts)) == 1


def context_of_replies(model: pyturbo.Model) -> int:
    return model.runner.context_for(4096)


def test_an_engine_that_ends_meanwhile(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[bool] = []
    monkeypatch.setattr(runners, "BatchGraph", slow(runners.BatchGraph, pauses))
    with pyturbo.Engine(model, piece_ms=1) as engine:
        streams = submitted(engine, ["Once", "Twice"], 500)
        deadline = time.monotonic() + 60
        while not pauses and time.monotonic() < deadline:
            time.sleep(0.001)
    with pytest.raises(StateError, match="the engine is closed"):
        streams[0].result()
    assert not [thread for thread in threading.enumerate() if thread.name == "pyturbo-recording"]


def test_replies_that_end_meanwhile(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not needed any more is left off: it holds memory, and the weights."""
    pauses: list[bool] = []
    monkeypatch.setattr(runners, "BatchGraph", slow(runners.BatchGraph, pauses))
    with pyturbo.Engine(model, piece_ms=1) as engine:
        for stream in submitted(engine, ["Once", "Twice"], 5):
            stream.result()
        deadline = time.monotonic() + 60
        while any(thread.name == "pyturbo-recording" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert pauses == [True]


def test_a_recording_that_fails(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(runners, "BatchGraph", fail)
    with pyturbo.Engine(model) as engine:
        for stream in submitted(engine, ["Once", "Twice"], 500):
            with pytest.raises(ZeroDivisionError, match="a mistake"):
                stream.result()


def test_a_model_that_is_closed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[bool] = []
    monkeypatch.setattr(runners, "BatchGraph", slow(runners.BatchGraph, pauses))
    with pyturbo.load(threads=2) as model, pyturbo.Engine(model, piece_ms=1) as engine:
        streams = submitted(engine, ["Once", "Twice"], 500)
        deadline = time.monotonic() + 60
        while not pauses and time.monotonic() < deadline:
            time.sleep(0.001)
        model.close()
        for stream in streams:
            with pytest.raises(StateError, match="closed"):
                stream.result()


def test_without_another_thread(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is recorded in one piece."""

    def refuse(self: Sliced, seconds: float) -> bool:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Sliced, "advance", refuse)
    with pyturbo.Engine(model) as engine:
        for stream in submitted(engine, ["Once", "Twice"], 60):
            assert len(stream.result().tokens) == 60
    assert not model.runner.lacks_batch((context_of_replies(model),) * 2)
