"""Memory of conversations and texts: who has it, who waits for it, and who is told that there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pyturbo
from pyturbo.batching import Engine, scheduler
from pyturbo.batching.scheduler import Scheduler
from pyturbo.cli import serve
from pyturbo.cli._usage import UsageError
from pyturbo.errors import AllocationError, ArgumentError, BusyError, CancelledError, StateError

from .gate import Gate
from .prompts import PROMPTS, until


@pytest.fixture(scope="module")
def model() -> pyturbo.Model:
    return pyturbo.load(threads=2)


def test_memory_for_states(model: pyturbo.Model) -> None:
    nbytes = model.runner.layout(512).nbytes
    with Engine(model, context=512, memory=2 * nbytes) as engine:
        streams = [engine.submit(prompt, max_tokens=8) for prompt in PROMPTS]
        most = 0
        while not all(stream.ended for stream in streams):
            most = max(most, engine.state_bytes)
            assert engine.running <= 2
        assert most <= 2 * nbytes
    with Engine(model, context=512, memory=nbytes) as engine:
        with pytest.raises(ArgumentError, match="the memory of the engine, got .* and 1800 more"):
            engine.submit(PROMPTS[0], max_tokens=1800)
        assert engine.submit(PROMPTS[0], max_tokens=3, temperature=0).result().text == ", there was"


def test_the_queue_where_memory_is_the_limit(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free slots without memory make no room in it."""
    gate = Gate(monkeypatch)
    with Engine(model, slots=8, queue=2, context=512, memory=model.runner.layout(512).nbytes) as engine:
        streams = [engine.submit(PROMPTS[0], max_tokens=2)]
        assert gate.reached.wait(60)
        streams += [engine.submit(PROMPTS[0], max_tokens=2) for _ in range(2)]
        with pytest.raises(BusyError, match="submit: expected at most 2 replies that wait"):
            engine.submit(PROMPTS[0])
        gate.open()
        assert all(len(stream.result().tokens) == 2 for stream in streams)


@pytest.fixture
def limited() -> Iterator[pyturbo.Model]:
    """A model whose memory is enough for one conversation of 512 tokens, and nearly for another."""
    with pyturbo.load(device="cpu", memory="64GB", prefix_cache="64MB") as model:
        budget, nbytes = model.runner.budget, model.runner.layout(512).nbytes
        assert budget is not None
        budget.total -= budget.most - nbytes - model.runner.program_bytes(512) - nbytes + 4096
        yield model


def test_conversations_wait_for_the_memory_of_a_model(limited: pyturbo.Model) -> None:
    """Prompts that it keeps are forgotten for them."""
    store = limited.prefix_store
    assert store is not None
    with Engine(limited, context=512) as engine:
        streams = [engine.submit([*range(5 + i, 205 + i)], max_tokens=8, ignore_eos=True) for i in range(6)]
        kept = 0
        while not all(stream.ended for stream in streams):
            kept = max(kept, store.nbytes)
            assert engine.running <= 1
        assert [len(stream.result().tokens) for stream in streams] == [8] * 6
        assert kept > 0
        with engine.reading(20):
            waits = engine.submit(PROMPTS[0], max_tokens=3)
            limited.embed([5] * 20)
            assert engine.waiting == 1
        assert waits.result().text == ", there was"


def test_conversations_larger_than_the_memory_of_a_model(limited: pyturbo.Model) -> None:
    budget = limited.runner.budget
    assert budget is not None
    budget.total -= limited.runner.layout(512).nbytes - 4096  # it is now enough for one, and not more
    with Engine(limited, context=512) as engine:
        with pytest.raises(ArgumentError, match="memory of the model leaves, got .* and 1800 more"):
            engine.submit(PROMPTS[0], max_tokens=1800)
        with pytest.raises(ArgumentError, match="memory of the model leaves, got .* 1800 tokens"):
            engine.require_text(1800)
        assert serve._room(engine, 512) == ""
        with pytest.raises(
            UsageError, match="--memory: expected at least .* of 2000 tokens .--context., got"
        ):
            serve._room(engine, 2000)
        assert engine.submit(PROMPTS[0], max_tokens=3).result().text == ", there was"


def test_memory_of_a_model_that_others_have_taken(limited: pyturbo.Model) -> None:
    """Nobody knows when they give it back: that is no reason to wait."""
    with Engine(limited, context=512) as engine:
        other = limited.session(2048)
        with pytest.raises(AllocationError, match="which a memory of"):
            engine.submit(PROMPTS[0], max_tokens=3).result()
        other.close()
        assert engine.submit(PROMPTS[0], max_tokens=3).result().text == ", there was"


def test_texts_take_memory_of_states_in_turn_with_replies(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbytes, looks, goes_on = model.runner.layout(512).nbytes, [0], threading.Event()
    look, step = Scheduler._admit, scheduler.step_together

    def counted(self: Scheduler) -> None:
        looks[0] += 1
        look(self)

    def gated(*given: Any) -> Any:
        goes_on.wait(60)
        return step(*given)

    monkeypatch.setattr(Scheduler, "_admit", counted)
    monkeypatch.setattr(scheduler, "step_together", gated)
    with Engine(model, context=512, memory=nbytes) as engine:
        with pytest.raises(ArgumentError, match="texts: expected a state of at most .* for 1800 tokens"):
            engine.require_text(1800)
        with engine.reading(20):
            assert engine.state_bytes == nbytes
            reply = engine.submit(PROMPTS[0], max_tokens=300, ignore_eos=True)
            time.sleep(0.3)
            assert (engine.running, engine.waiting, reply.queued_seconds) == (0, 1, None)
            assert looks[0] < 20
        next(reply)
        checks: list[int] = []
        with pytest.raises(CancelledError), engine.reading(20, lambda: _gone_after(checks, 3)):
            pytest.fail("there is no memory")
        assert engine.running == 1
        later: list[Any] = []
        thread = threading.Thread(target=lambda: later.append(_read(engine)))
        thread.start()
        while not engine._scheduler._texts:
            time.sleep(0.01)
        second = engine.submit(PROMPTS[1], max_tokens=2)
        reply.cancel()
        goes_on.set()
        second.result()
        assert later == [nbytes]  # before the reply that came later
        thread.join(30)
        assert engine.state_bytes == 0
    with pytest.raises(StateError, match="closed"), engine.reading(20):
        pytest.fail("it is closed")


def test_a_reply_on_its_way_has_its_memory(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes, goes_on, begun = model.runner.layout(512).nbytes, threading.Event(), threading.Event()
    admitted = Scheduler._admitted

    def slow(entry: Any) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return admitted(entry)

    monkeypatch.setattr(Scheduler, "_admitted", staticmethod(slow))
    with Engine(model, context=512, memory=nbytes) as engine:
        reply = engine.submit(PROMPTS[0], max_tokens=3)
        assert begun.wait(60)
        checks: list[int] = []
        with pytest.raises(CancelledError), engine.reading(20, lambda: _gone_after(checks, 3)):
            pytest.fail("there is no memory")
        assert engine.state_bytes == nbytes
        goes_on.set()
        assert reply.result().text == ", there was"
        until(lambda: engine.state_bytes == 0)


def test_nobody_waits_while_a_model_says_whether_it_has_room(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> bool:
        asked.set()
        return goes_on.wait(60)

    with Engine(model, context=512) as engine:
        limits = engine._scheduler._limits
        monkeypatch.setattr(engine._scheduler, "_limits", limits._replace(has_room=slow))
        replies = [engine.submit(PROMPTS[0], max_tokens=3)]
        assert asked.wait(60)
        replies.append(engine.submit(PROMPTS[1], max_tokens=3))
        assert (engine.running, engine.waiting) == (0, 2)
        engine._scheduler.stop()
        engine._scheduler.tell_end()
        for reply in replies:
            with pytest.raises(StateError, match="closed"):
                reply.result()
        goes_on.set()


def _gone_after(checks: list[int], count: int) -> None:
    checks.append(1)
    if len(checks) == count:
        raise CancelledError("gone")


def _read(engine: Engine) -> int:
    """Hold the memory of a text for a while; return what was taken then."""
    with engine.reading(20):
        time.sleep(0.2)
        return engine.state_bytes
