"""Prompts that begin alike and are submitted at once: one conversation reads, the others wait for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pyturbo
from pyturbo.batching import Engine
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, StateError
from tiny_configs import MODELS
from tiny_models import write_mlx

from .gate import Gate
from .prompts import until

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. " * 4


def counts(reply: pyturbo.Completion) -> tuple[int, int]:
    return reply.stats.cached_tokens, reply.stats.prompt_tokens


@pytest.mark.parametrize("prefix_cache", [None, "100MB"])
@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_one_prompt_several_times_is_read_once(prefix_cache: str | None, kv: str) -> None:
    """The bundled model has delta nets: its states cannot be cut."""
    model = pyturbo.load(threads=2, kv=kv, prefix_cache=prefix_cache)
    ids = model.prompt_ids(STORY)
    options = {"temperature": 0.8, "seed": 5}
    want = [pyturbo.load(threads=2, kv=kv).generate(STORY, 8, temperature=0.8, seed=5 + i) for i in range(4)]
    with Engine(model, slots=8) as engine:
        got = [stream.result() for stream in engine.submit_several(STORY, 4, max_tokens=8, **options)]
        assert engine.usage.prompt_tokens <= len(ids)
    assert [reply.tokens for reply in got] == [reply.tokens for reply in want]
    assert [counts(reply) for reply in got] == [(0, len(ids)), *[(len(ids), 0)] * 3]


def test_replies_of_one_token() -> None:
    model = pyturbo.load(threads=2)
    want = model.generate(STORY, 1).tokens
    with Engine(model) as engine:
        got = [stream.result() for stream in engine.submit_several(STORY, 3, max_tokens=1)]
    assert [reply.tokens for reply in got] == [want] * 3
    assert [reply.stats.prompt_tokens > 0 for reply in got] == [True, False, False]


def test_more_than_have_a_slot() -> None:
    model = pyturbo.load(threads=2)
    with Engine(model, slots=2) as engine:
        got = [stream.result() for stream in engine.submit_several(STORY, 5, max_tokens=4)]
    most = "count: expected at most 5 replies at once, .* got 6"
    with Engine(model, slots=2, queue=3) as engine, pytest.raises(ArgumentError, match=most):
        engine.submit_several(STORY, 6)
    assert len({tuple(reply.tokens) for reply in got}) == 1
    assert sum(reply.stats.prompt_tokens == 0 for reply in got) >= 1


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_never_reads_its_prompt_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    model = pyturbo.load(threads=2)
    prompt = [5 + i % 300 for i in range(model.runner.traits.chunk + 50)]  # two pieces
    want = model.generate(prompt, 4).tokens
    with Engine(model) as engine:
        gate, advance = Gate(monkeypatch), Session._advance
        failing = [fails]

        def advanced(session: Session, *args: object) -> object:
            result = advance(session, *args)
            if failing and failing.pop():
                raise RuntimeError("a piece of a prompt")
            return result

        monkeypatch.setattr(Session, "_advance", advanced)
        first, *others = engine.submit_several(prompt, 3, max_tokens=4)
        assert gate.reached.wait(60)
        until(lambda: engine.running == 3)
        if not fails:
            first.cancel()
        gate.open()
        if fails:
            with pytest.raises(RuntimeError, match="a piece of a prompt"):
                first.result()
        else:
            assert first.result().finish_reason == "cancelled"
        got = [stream.result() for stream in others]
    assert [reply.tokens for reply in got] == [want, want]
    assert [reply.stats.prompt_tokens > 0 for reply in got] == [True, False]
    assert [stream.progress for stream in others] == [(len(prompt), len(prompt))] * 2


@pytest.mark.parametrize("how", ["cancel", "close", "drain"])
def test_the_end_of_all_that_wait(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    model = pyturbo.load(threads=2)
    engine, gate = Engine(model), Gate(monkeypatch)
    streams = engine.submit_several(STORY, 4, max_tokens=4)
    assert gate.reached.wait(60)
    until(lambda: engine.running == 4)
    if how == "cancel":
        monkeypatch.setattr(type(model.runner.origin), "check_files", _fail)
        for stream in streams:
            stream.cancel()
    ending = threading.Thread(target=engine.close if how == "close" else engine.drain)
    ending.start()
    if how == "close":
        until(lambda: not engine.alive)
    gate.open()
    ending.join(60)
    assert not ending.is_alive()
    assert engine.running == 0
    for stream in streams:
        if how == "close":
            with pytest.raises(StateError, match="closed"):
                stream.result()
        else:
            assert stream.result().finish_reason == ("cancelled" if how == "cancel" else "length")
    engine.close()


def _fail(*args: object) -> None:
    raise RuntimeError("files that changed")


def test_common_beginnings_are_read_once_with_a_store(tmp_path: Path) -> None:
    write_mlx(MODELS["llama"], tmp_path)
    plain, model = (
        pyturbo.load(tmp_path, threads=2, kv="f32", prefix_cache=cache) for cache in (None, "100MB")
    )
    beginning = [7 + i % 50 for i in range(100)]
    prompts = [[*beginning, *range(20 * i + 1, 20 * i + 5)] for i in range(4)]
    want = [plain.generate(prompt, 6).tokens for prompt in prompts]
    with Engine(model, slots=4) as engine:
        got = [stream.result() for stream in [engine.submit(prompt, max_tokens=6) for prompt in prompts]]
        unrelated = engine.submit([3] * 50, max_tokens=2).result()
    assert [reply.tokens for reply in got] == want
    assert [counts(reply) for reply in got] == [(0, 104), *[(100, 4)] * 3]
    assert unrelated.stats.cached_tokens == 0
