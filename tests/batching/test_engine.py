"""Many conversations at once, against the same conversations alone."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyturbo
from processes import run_script
from pyturbo.batching import Engine
from pyturbo.engine import runner
from pyturbo.engine.session import Session
from pyturbo.errors import (
    AllocationError,
    ArgumentError,
    BusyError,
    ContextError,
    DeviceError,
    StateError,
)
from pyturbo.text import Tokenizer
from tiny_configs import MODELS
from tiny_models import write_mlx

from .gate import Gate
from .prompts import PROMPTS, until


@pytest.fixture(scope="module")
def model() -> pyturbo.Model:
    return pyturbo.load(threads=2)


@pytest.fixture
def engine(model: pyturbo.Model) -> Iterator[Engine]:
    with Engine(model) as engine:
        yield engine


def test_replies_are_those_of_the_model_alone(model: pyturbo.Model, engine: Engine) -> None:
    options: list[dict[str, Any]]
    options = [{}, {"temperature": 0.8, "seed": 3}, {"stop": ["."]}, {"logprobs": 2, "top_k": 5, "seed": 1}]
    want = [model.generate(prompt, 24, **each) for prompt, each in zip(PROMPTS, options)]
    streams = [engine.submit(prompt, max_tokens=24, **each) for prompt, each in zip(PROMPTS, options)]
    for stream, alone in zip(streams, want):
        got = stream.result()
        assert (got.text, got.tokens, got.logprobs, got.top, got.finish_reason) == (
            alone.text, alone.tokens, alone.logprobs, alone.top, alone.finish_reason
        )  # fmt: skip
        assert got.stats.tokens == len(got.tokens)


def test_constrained_replies_are_those_of_the_model_alone(model: pyturbo.Model, engine: Engine) -> None:
    options: list[dict[str, Any]]
    options = [
        {"regex": " [a-z]{2,9}( [a-z]{2,9})*\\."},
        {"schema": {"enum": [True, "yes", 12]}, "temperature": 1.5, "seed": 3},
        {"min_tokens": 20, "stop": "e", "presence_penalty": 1.0, "logit_bias": {"e": 1.0}},
        {"grammar": 'start: " one" | " two" start', "ignore_eos": True, "dry_multiplier": 1.0},
    ]
    want = [model.generate(prompt, 24, **each) for prompt, each in zip(PROMPTS, options)]
    streams = [engine.submit(prompt, max_tokens=24, **each) for prompt, each in zip(PROMPTS, options)]
    for stream, alone in zip(streams, want):
        got = stream.result()
        assert (got.text, got.tokens, got.finish_reason) == (alone.text, alone.tokens, alone.finish_reason)


def test_steps_are_shared(engine: Engine) -> None:
    streams = [engine.submit(prompt, max_tokens=24, temperature=0) for prompt in PROMPTS]
    tokens = sum(len(stream.result().tokens) for stream in streams)
    usage = engine.usage
    assert usage.step_tokens == tokens - len(PROMPTS)  # the first token of a reply comes from its prompt
    assert usage.steps < 0.5 * usage.step_tokens
    assert usage.prompt_tokens == sum(stream.stats.prompt_tokens for stream in streams)
    assert 0 < usage.replay_seconds < usage.busy_seconds


@pytest.mark.parametrize("device", [device for device in pyturbo.devices() if device != "cpu"])
def test_all_devices(device: str, tmp_path: Path) -> None:
    write_mlx(MODELS["qwen3_5_moe"], tmp_path / "model")
    model = pyturbo.load(tmp_path / "model", device)
    prompts = [list(range(3, 3 + count)) for count in (4, 9, 5)]
    want = [model.generate(prompt, 3, temperature=0).tokens for prompt in prompts]
    with Engine(model, slots=2) as engine:
        streams = [engine.submit(prompt, max_tokens=3, temperature=0) for prompt in prompts]
        assert [stream.result().tokens for stream in streams] == want


@settings(max_examples=12)
@given(data=st.data())
def test_conversations_come_and_go(model: pyturbo.Model, data: st.DataObject) -> None:
    """Any prompts, lengths and moments of arrival give each conversation its own tokens."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 150), st.integers(1, 12)), min_size=2, max_size=6))
    prompts = [rng.integers(5, 4000, length).tolist() for length, _ in lengths]
    slots = data.draw(st.integers(1, 4))
    with Engine(model, slots=slots, piece_ms=0.01) as engine:
        streams, taken = [], []
        for prompt, (_, tokens) in zip(prompts, lengths):
            streams.append(engine.submit(prompt, max_tokens=tokens, temperature=0))
            taken.append([next(streams[-1])] if data.draw(st.booleans()) else [])
        got = [[*first, *stream] for first, stream in zip(taken, streams)]
    assert all(chunks[-1].finish_reason in ("stop", "length") for chunks in got)
    with Engine(model, slots=slots, piece_ms=0.01) as engine:
        streams = [
            engine.submit(prompt, max_tokens=tokens, temperature=0)
            for prompt, (_, tokens) in zip(prompts, lengths)
        ]
        for stream, prompt, (_, tokens) in zip(streams, prompts, lengths):
            assert stream.result().tokens == model.generate(prompt, tokens, temperature=0).tokens


def test_many_conversations_are_read_by_one_program(model: pyturbo.Model) -> None:
    rng = np.random.default_rng(4)
    prompts = [
        rng.integers(5, 4000, length).tolist() for length in (9, 1, 40, 300, 2, 26, 33, 5, 64, 100, 7, 3)
    ]
    want = [model.generate(prompt, 3 + i, temperature=0).tokens for i, prompt in enumerate(prompts)]
    with Engine(model, slots=len(prompts), context=512) as engine:
        engine.submit([5], max_tokens=1).result()
        before = engine.usage
        # One after the other, they would be admitted while the first is read.
        with engine._scheduler._changed:
            streams = [
                engine.submit(prompt, max_tokens=3 + i, temperature=0) for i, prompt in enumerate(prompts)
            ]
        assert [stream.result().tokens for stream in streams] == want
        assert engine.usage.prompt_tokens - before.prompt_tokens == sum(map(len, prompts)) - 1
    assert [room.steps for context, room in model.runner._mixed if context == 512] == [16]
    assert not [contexts for contexts in model.runner._batches if 512 in contexts]


@pytest.mark.parametrize("error", [DeviceError("lost"), AllocationError("no room")])
def test_a_pass_of_many_that_fails(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("pyturbo.batching.scheduler.read_together", fail)
    want = [model.generate(prompt, 4, temperature=0).tokens for prompt in PROMPTS]
    with Engine(model, slots=8) as engine:
        with engine._scheduler._changed:
            streams = [engine.submit(prompt, max_tokens=4, temperature=0) for prompt in 2 * PROMPTS]
        for i, stream in enumerate(streams):
            if isinstance(error, AllocationError):  # other programs read them
                assert stream.result().tokens == want[i % len(want)]
            else:
                with pytest.raises(DeviceError, match="lost"):
                    stream.result()


def with_memory_for_all_but_the_program_of_many(model: pyturbo.Model) -> tuple[pyturbo.Model, int]:
    """Return the same model with a memory limit, and the bytes of the program for 8 conversations."""
    with model.runner.mixed(2048, 8, prompts=True) as graph:
        nbytes = graph.scratch_bytes
    limited = pyturbo.load(threads=2, memory="4GiB")
    budget = limited.runner.budget
    assert budget is not None
    budget.total += nbytes - budget.left  # it would fit, but for the states
    return limited, nbytes


def test_a_program_of_many_that_does_not_fit(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    recorded: list[str] = []

    def watch(graph: type) -> None:
        def record(*args: Any) -> Any:
            begun.append(graph.__name__)
            made = graph(*args)
            recorded.append(graph.__name__)
            return made

        monkeypatch.setattr(runner, graph.__name__, record)

    for graph in (runner.Graph, runner.BatchGraph, runner.MixedGraph):
        watch(graph)
    want = [model.generate(prompt, 20, temperature=0).tokens for prompt in PROMPTS]
    limited, _ = with_memory_for_all_but_the_program_of_many(model)
    begun.clear()
    recorded.clear()
    with Engine(limited, slots=8) as engine:
        for _ in range(2):
            with engine._scheduler._changed:
                streams = [engine.submit(prompt, max_tokens=20, temperature=0) for prompt in 2 * PROMPTS]
            assert [stream.result().tokens for stream in streams] == 2 * want
        usage = engine.usage
    tokens = sum(stream.stats.tokens for stream in streams)
    assert usage.step_tokens == 2 * (tokens - len(streams))
    assert usage.steps < 0.5 * usage.step_tokens
    assert usage.prompt_tokens == 2 * sum(stream.stats.prompt_tokens for stream in streams)
    assert begun.count("MixedGraph") == 1
    assert recorded.count("Graph") <= 2  # for a token, and for a piece of a prompt
    assert recorded.count("BatchGraph") <= 7  # for 2 to 8 conversations; others may be left off


def test_a_program_of_many_fits_once_memory_is_freed(model: pyturbo.Model) -> None:
    limited, more = with_memory_for_all_but_the_program_of_many(model)
    assert limited.runner.budget is not None
    with Engine(limited, slots=8) as engine:
        for fits in (False, True):
            with engine._scheduler._changed:
                streams = [engine.submit(prompt, max_tokens=6) for prompt in 2 * PROMPTS]
            assert all(stream.result().tokens for stream in streams)
            assert bool(limited.runner._mixed) == fits
            limited.runner.budget.total += more


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_a_long_prompt_is_read_between_the_steps_of_others(kv: str) -> None:
    model = pyturbo.load(threads=2, kv=kv)
    # Chunks of 256 tokens; pieces of 32 and less.
    tokens, pieces = (700, 3) if kv == "turbo4" else (150, 5)
    prompt = np.random.default_rng(1).integers(5, 4000, tokens).tolist()
    want = [model.generate(p, 30, temperature=0).tokens for p in (PROMPTS[0], prompt)]
    with Engine(model, piece_ms=0.01) as engine:
        first = engine.submit(PROMPTS[0], max_tokens=30, temperature=0)
        chunks = [next(first)]
        second = engine.submit(prompt, max_tokens=30, temperature=0)
        tokens_before = None
        for chunk in first:
            chunks.append(chunk)
            if tokens_before is None and second.stats.tokens:
                tokens_before = len(chunks)
        assert tokens_before is not None
        assert tokens_before >= pieces
        assert [[chunk.token for chunk in chunks], second.result().tokens] == want


def test_asyncio(model: pyturbo.Model, engine: Engine) -> None:
    async def one(prompt: str) -> list[int]:
        return [chunk.token async for chunk in engine.submit(prompt, max_tokens=8, temperature=0)]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*map(one, PROMPTS))

    want = [model.generate(prompt, 8, temperature=0).tokens for prompt in PROMPTS]
    assert asyncio.run(all_of_them()) == want


def test_a_cancelled_task_cancels_its_reply(engine: Engine) -> None:
    async def main() -> pyturbo.Stream:
        stream = engine.submit(PROMPTS[0], max_tokens=2000, temperature=0, stop=[])

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read())
        while stream.stats.tokens < 3:
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream

    stream = asyncio.run(main())
    until(lambda: stream.ended)
    assert stream.cancelled
    assert engine.running == 0


def test_cancel(engine: Engine) -> None:
    stream = engine.submit([7, 8, 9], max_tokens=1000, temperature=0)
    next(stream)
    stream.cancel()
    result = stream.result()
    assert result.finish_reason == "cancelled" or result.finish_reason == "stop"
    until(lambda: engine.running == 0)
    assert engine.submit(PROMPTS[0], max_tokens=3, temperature=0).result().text == ", there was"


def test_a_forgotten_stream_is_cancelled(engine: Engine) -> None:
    stream = engine.submit([7, 8, 9], max_tokens=1000, temperature=0)
    next(stream)
    mailbox = stream._mailbox
    del stream
    gc.collect()
    until(lambda: mailbox.ended)
    assert engine.running == 0


def test_a_stream_keeps_its_engine(model: pyturbo.Model) -> None:
    stream = Engine(model).submit([7, 8, 9], max_tokens=6)
    gc.collect()
    assert len(stream.result().tokens) == 6


def test_those_that_wait(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    order: list[str] = []
    with Engine(model, slots=1, queue=3) as engine:
        first = engine.submit(PROMPTS[0], max_tokens=2)
        assert gate.reached.wait(60)
        assert first.queued_seconds is not None
        others = {
            name: engine.submit(PROMPTS[1], max_tokens=2, priority=priority)
            for name, priority in (("low", 0), ("high", 5), ("dropped", 9))
        }
        assert (engine.running, engine.waiting) == (1, 3)
        assert others["low"].queued_seconds is None
        with pytest.raises(BusyError, match="submit: expected at most 3 replies that wait"):
            engine.submit(PROMPTS[2])
        others["dropped"].cancel()
        gate.open()
        assert others["dropped"].result().tokens == []

        def wait_for(name: str) -> None:
            next(others[name])
            order.append(name)

        threads = [threading.Thread(target=wait_for, args=(name,)) for name in ("low", "high")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queued = [others[name].queued_seconds for name in ("high", "low")]
    assert queued[0] < queued[1]  # type: ignore[operator]


def test_a_failed_step_ends_only_who_took_part(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(model) as engine:
        with monkeypatch.context() as patch:

            def fail(*args: object) -> None:
                raise DeviceError("lost")

            patch.setattr("pyturbo.batching.scheduler.step_together", fail)
            streams = [engine.submit(prompt, max_tokens=4) for prompt in PROMPTS]
            for stream in streams:
                assert next(stream).text
                with pytest.raises(DeviceError, match="lost"):
                    stream.result()
        assert engine.submit(PROMPTS[0], max_tokens=3, temperature=0).result().text == ", there was"


def test_close_ends_everything(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model, slots=1)
    streams = [engine.submit([5, 6, 7], max_tokens=1000) for _ in range(2)]
    next(streams[0])
    engine.close()
    engine.close()
    for stream in streams:
        with pytest.raises(StateError, match="the engine is closed"):
            stream.result()
    with pytest.raises(StateError, match="the engine is closed"):
        engine.submit(PROMPTS[0])
    assert repr(engine) == "Engine(closed)"


def test_close_tells_replies_before_the_step_under_way_ends(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, gate = Engine(model, slots=1), Gate(monkeypatch)
    streams = [engine.submit([5, 6, 7], max_tokens=10) for _ in range(2)]
    assert gate.reached.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    for stream in streams:
        with pytest.raises(StateError, match="the engine is closed"):
            stream.next(30)
    assert closing.is_alive()
    gate.open()
    closing.join(60)
    assert (closing.is_alive(), engine.running, engine.waiting) == (False, 0, 0)


def test_close_tells_a_reply_that_is_being_admitted_and_begins_no_other(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitting, go_on, begun, session = threading.Event(), threading.Event(), [], pyturbo.Model.session

    def slow(self: pyturbo.Model, context: int | None = None) -> Session:
        begun.append(context)
        admitting.set()
        assert go_on.wait(60)
        return session(self, context)

    monkeypatch.setattr(pyturbo.Model, "session", slow)
    engine = Engine(model, slots=2)
    streams = [engine.submit([5, 6, 7], max_tokens=10) for _ in range(2)]
    assert admitting.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    try:
        for stream in streams:
            with pytest.raises(StateError, match="the engine is closed"):
                stream.next(30)
        assert closing.is_alive()
    finally:
        go_on.set()
        closing.join(60)
    assert (closing.is_alive(), engine.running, engine.waiting, engine.state_bytes) == (False, 0, 0, 0)
    assert (len(begun), engine.usage.prompt_tokens) == (1, 0)


def test_drain(model: pyturbo.Model) -> None:
    engine = Engine(model)
    streams = [engine.submit(prompt, max_tokens=6) for prompt in PROMPTS]
    assert engine.drain(60)
    assert all(stream.ended and not stream.cancelled for stream in streams)
    with pytest.raises(StateError, match="closed"):
        engine.submit(PROMPTS[0])
    engine.close()


def test_drain_waits_for_a_reply_that_is_being_admitted(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitting, go_on, session = threading.Event(), threading.Event(), pyturbo.Model.session

    def slow(self: pyturbo.Model, context: int | None = None) -> Session:
        admitting.set()
        assert go_on.wait(60)
        return session(self, context)

    monkeypatch.setattr(pyturbo.Model, "session", slow)
    with Engine(model) as engine:
        stream = engine.submit(PROMPTS[0], max_tokens=3, temperature=0)
        assert admitting.wait(60)
        assert not engine.drain(0.05)
        go_on.set()
        assert engine.drain(60)
        assert stream.result().text == ", there was"


def test_drain_after_a_reply_that_is_not_admitted(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: pyturbo.Model, context: int | None = None) -> Session:
        time.sleep(0.05)  # the other thread waits by now
        raise AllocationError("no room")

    monkeypatch.setattr(pyturbo.Model, "session", refused)
    with Engine(model) as engine:
        stream = engine.submit(PROMPTS[0])
        assert engine.drain(60)
        with pytest.raises(AllocationError, match="no room"):
            stream.result()


def test_without_memory_for_a_program_of_all(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    want = [model.generate(prompt, 4, temperature=0).tokens for prompt in PROMPTS]

    def full(*args: object) -> None:
        raise AllocationError("no room")

    monkeypatch.setattr("pyturbo.batching.scheduler.step_together", full)
    with Engine(model) as engine:
        streams = [engine.submit(prompt, max_tokens=4, temperature=0) for prompt in PROMPTS]
        assert [stream.result().tokens for stream in streams] == want
        usage = engine.usage
    assert usage.step_tokens == sum(map(len, want)) - len(want)
    assert 3 <= usage.steps <= usage.step_tokens
    assert usage.prompt_tokens == sum(stream.stats.prompt_tokens for stream in streams)
    assert 0 < usage.replay_seconds < usage.busy_seconds


def test_a_reply_whose_text_nobody_can_take_apart_does_not_wait(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with Engine(model, slots=1) as engine:
        first = engine.submit(PROMPTS[0], max_tokens=2)
        assert gate.reached.wait(60)
        with monkeypatch.context() as patch:

            def fail(*args: object) -> None:
                raise ArgumentError("no parser")

            patch.setattr(pyturbo.Model, "reply_parser", fail)
            with pytest.raises(ArgumentError, match="no parser"):
                engine.submit(PROMPTS[1])
        assert engine.waiting == 0
        gate.open()
        assert first.result().tokens


def test_an_engine_that_is_forgotten_in_a_cycle(model: pyturbo.Model) -> None:
    engine = Engine(model)
    cycle: list[object] = [engine]
    cycle.append(cycle)
    thread, stream = engine._scheduler._thread, engine.submit([5, 6, 7], max_tokens=1500, ignore_eos=True)
    next(stream)
    cycle.append(stream)  # which would keep the engine
    del engine, stream, cycle
    with model.runner._lock:  # which the thread of the engine needs
        gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_many_threads(model: pyturbo.Model, engine: Engine) -> None:
    want = model.generate(PROMPTS[0], 6, temperature=0).tokens
    found: list[list[int]] = []

    def ask() -> None:
        for _ in range(4):
            found.append(engine.submit(PROMPTS[0], max_tokens=6, temperature=0).result().tokens)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 24


def test_a_closed_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pyturbo.load(threads=2)
    with Engine(model) as engine:
        stream = engine.submit([5, 6, 7], max_tokens=1500)
        next(stream)
        model.close()
        with pytest.raises(StateError, match="the model is closed"):
            stream.result()
        with pytest.raises(StateError, match="the model is closed"):
            engine.submit(PROMPTS[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens: expected"),
        ({"temperature": -1}, "temperature: expected"),
        ({"speed": 3}, "submit: expected options among max_tokens, .*, got speed"),
        ({"ends": "soon"}, "ends: expected a time of time.monotonic, got 'soon'"),
        ({"ends": float("nan")}, "ends: expected a time of time.monotonic, got nan"),
        ({"priority": 0.5}, "priority: expected an integer, got 0.5"),
        ({"stop": [3]}, "stop"),
        ({"regex": "["}, "regex: expected a regular expression that a reply can fit"),
        ({"schema": {"enum": []}}, "schema: expected a JSON schema that a reply can fit"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias: token: expected an id below 4096"),
    ],
)
def test_wrong_options(engine: Engine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        engine.submit(PROMPTS[0], **options)


@pytest.mark.parametrize("ends", [float("inf"), 10**400])
def test_a_reply_whose_time_is_never_over(engine: Engine, ends: float) -> None:
    assert len(engine.submit(PROMPTS[0], max_tokens=3, temperature=0, ends=ends).result().tokens) == 3


def test_wrong_arguments(model: pyturbo.Model) -> None:
    with pytest.raises(ArgumentError, match="Engine: model: expected a Model, got 3"):
        Engine(3)  # type: ignore[arg-type]
    for name, value in (("slots", 0), ("queue", -1), ("context", 0), ("piece_ms", 0), ("memory", "much")):
        with pytest.raises(ArgumentError, match=f"Engine: {name}: expected"):
            Engine(model, **{name: value})


def test_prompts_that_do_not_fit(model: pyturbo.Model, engine: Engine) -> None:
    with pytest.raises(ArgumentError, match="prompt: expected at most 2048 tokens"):
        engine.submit([5] * 3000)
    with pytest.raises(ArgumentError, match="at least one token"):
        engine.submit("")


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_encoded(
    model: pyturbo.Model, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "Once upon a time. " * 100_000
    monkeypatch.setattr(Tokenizer, "encode", lambda *_: pytest.fail("it is encoded"))
    for refused in (engine.submit, model.stream, model.embed):
        with pytest.raises(ContextError, match="expected at most 2048 tokens, a context, got at least"):
            refused(long)


FORGOTTEN = """
import tempfile
before = tempfile.TemporaryDirectory()  # finalizers now run after atexit's own
import pyturbo
engine = pyturbo.Engine(pyturbo.load())
stream = engine.submit([5, 6, 7], max_tokens=1500)
next(stream)
print("ends")
"""


@pytest.mark.slow
def test_a_process_ends_without_close(tmp_path: Path) -> None:
    done = run_script(FORGOTTEN, tmp_path, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


FORKED = """
import os, pyturbo
engine = pyturbo.Engine(pyturbo.load())
streams = [engine.submit([5, 6, 7 + i], max_tokens=1500) for i in range(3)]
next(streams[0])
for _ in range(5):
    child = os.fork()
    if child == 0:
        for use in (lambda: engine.submit("Once"), lambda: next(streams[0]), lambda: engine.drain(1)):
            try:
                use()
            except pyturbo.errors.StateError as error:
                assert "was made before fork()" in str(error), error
            else:
                raise AssertionError("expected a StateError")
        engine.close()
        raise SystemExit(0)  # ends as a whole process does
    assert os.waitpid(child, 0)[1] == 0
next(streams[0])
engine.close()
print("ends")
"""


@pytest.mark.slow
def test_a_child_of_fork_hangs_nowhere(tmp_path: Path) -> None:
    done = run_script(FORKED, tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_several_replies_to_one_prompt_have_the_next_seeds(engine: Engine) -> None:
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 1.0}
    several = [stream.result().text for stream in engine.submit_several(PROMPTS[0], 3, seed=5, **options)]
    assert several == [engine.submit(PROMPTS[0], seed=5 + i, **options).result().text for i in range(3)]
    with pytest.raises(ArgumentError, match="count"):
        engine.submit_several(PROMPTS[0], 0)
