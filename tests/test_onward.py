"""Replies whose next step begins before the host has seen its token: on GPUs, greedy and top-k ones.

What a session has read is asked of a second one that reads the same tokens one by one, without a reply.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from packed_models import streamed, write_packed
from pyturbo._device import device_traits
from pyturbo._sampling import Sampler, TopLogits, top_logprobs
from pyturbo.batching import Engine
from pyturbo.conversation import Conversation
from pyturbo.engine import lead, onward
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, StateError
from text.tiny_chat import TEMPLATE, write_model

#: Those that go onward, and one that does not.
DEVICES = ["cpu", *(name for name in pyturbo.devices() if device_traits(name).top_logits)]

pytestmark = [pytest.mark.parametrize("device", DEVICES, indirect=True), pytest.mark.spread("metal", "cuda")]

IDS = [5, 9, 3, 200]
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
TOP_K: dict[str, Any] = {"temperature": 1.5, "top_k": 64 - 2, "top_p": 0.9, "seed": 5, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("onward") / "model", layers=2)


@pytest.fixture(scope="module")
def model(folder: Path, device: pyturbo.Device) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, device) as model:
        yield model


def check(model: pyturbo.Model, session: pyturbo.Session, tokens: list[int]) -> None:
    """A session has read these tokens, but for one that may be pending, and nothing else."""
    assert [*session.tokens, *session.pending] == tokens
    with model.session(session.context) as other:
        other.prefill(IDS)
        for token in tokens[len(IDS) : session.position]:
            other.step(token)
        np.testing.assert_array_equal(session.logits, other.logits)
        for name, piece in session.state.items():
            if name.endswith(("memory", "history")):
                np.testing.assert_array_equal(piece, other.state[name], name)
        for token in (session.tokens[-1], 7):  # a token once more is a token more
            position = session.position
            np.testing.assert_array_equal(session.step(token), other.step(token))
            assert session.position == position + 1


def is_onward(model: pyturbo.Model) -> bool:
    return model.device.traits.top_logits > 0


@pytest.mark.parametrize("options", [GREEDY, TOP_K], ids=["greedy", "top_k"])
def test_replies_are_those_of_steps(model: pyturbo.Model, options: dict[str, Any]) -> None:
    assert not model.eos_ids
    got = model.generate(IDS, 16, logprobs=3, **options)
    assert got.stats.tokens == len(got.tokens) == 16
    sampler = Sampler(**{name: value for name, value in options.items() if name != "ignore_eos"})
    with model.session(64) as session:
        logits = session.prefill(IDS)
        for token, logprob, top in zip(got.tokens, got.logprobs, got.top):
            assert sampler.sample(logits) == (token, pytest.approx(logprob, abs=1e-6))
            assert [each for each, _ in top] == [each for each, _ in top_logprobs(logits, 3)]
            logits = session.step(token)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_reply_that_is_left(model: pyturbo.Model, count: int) -> None:
    """From the second token on a GPU has read what was yielded; others leave the last token pending."""
    with model.session(64) as session:
        reply = model.stream(IDS, 20, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(count)]
        assert len(session.pending) == (not is_onward(model) or count == 1)
        assert [*session.tokens, *session.pending] == [*IDS, *tokens]
        reply.close()
        check(model, session, [*IDS, *tokens])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_last_of_max_tokens_stays_pending(model: pyturbo.Model, count: int) -> None:
    with model.session(64) as session:
        tokens = model.generate(IDS, count, session=session, **GREEDY).tokens
        assert session.pending == tokens[-1:]
        check(model, session, [*IDS, *tokens])


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_a_context_that_becomes_full(model: pyturbo.Model, room: int) -> None:
    context = len(IDS) + room
    with model.session(context) as session:
        reply = model.generate(IDS, 20, session=session, **GREEDY)
        assert (len(reply.tokens), reply.finish_reason) == (room + 1, "length")
        assert session.position == context
        assert session.pending == reply.tokens[-1:]
        assert session.tokens.tolist() == [*IDS, *reply.tokens[:-1]]


def test_a_reply_that_the_model_ends(folder: Path, tmp_path: Path, device: pyturbo.Device) -> None:
    with pyturbo.load(folder, device) as plain:
        tokens = plain.generate(IDS, 8, **GREEDY).tokens
    end = next(i for i in range(3, 8) if tokens[i] not in tokens[:i])
    ended = write_model(tmp_path / "model", layers=2, eos_token_id=tokens[end])
    with pyturbo.load(ended, device) as model, model.session(64) as session:
        reply = model.generate(IDS, 20, temperature=0, session=session)
        assert (reply.tokens, reply.finish_reason) == (tokens[: end + 1], "stop")
        assert len(session.pending) == (not is_onward(model))
        check(model, session, [*IDS, *reply.tokens])
        longer = model.generate(IDS, 20, temperature=0, min_tokens=end + 2)
        assert longer.tokens[:end] == tokens[:end]
        assert longer.tokens[end] != tokens[end]
        assert len(longer.tokens) > end + 1


@pytest.mark.parametrize("in_template", [True, False])
def test_turns_after_a_reply_that_the_model_ends(
    folder: Path, tmp_path: Path, device: pyturbo.Device, in_template: bool
) -> None:
    """Whether the template writes what the model ended its reply with, or not."""
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 0}
    with pyturbo.load(folder, device) as plain:
        tokens = [chunk.token for chunk in Conversation(plain, 256).reply("Hello", **options)]
        end = plain.tokenizer.decode(tokens[3:4], skip_special=False)
    said = "{{ m.content }}"
    ended = said + "{% if m.role == 'assistant' %}" + end + "{% endif %}"
    template = TEMPLATE.replace(said, ended) if in_template else TEMPLATE
    path = write_model(tmp_path / "model", layers=2, template=template, eos_token_id=tokens[3])
    with pyturbo.load(path, device) as model:
        conversation, fresh = Conversation(model, 256), Conversation(model, 256)
        first = [chunk.token for chunk in conversation.reply("Hello", **options)]
        assert first == tokens[:4]
        list(conversation.reply("And then?", **options))
        assert (conversation.reread == 0) == (in_template or not is_onward(model))
        fresh.messages = conversation.messages[:2]
        list(fresh.reply("And then?", **options))
        prompts = [each.session.tokens[: each.reply_start] for each in (conversation, fresh)]
        texts = [model.tokenizer.decode(prompt, skip_special=False) for prompt in prompts]
        assert texts[0] == texts[1]


def test_what_others_do_with_the_session_meanwhile(model: pyturbo.Model, tmp_path: Path) -> None:
    want = model.generate(IDS, 12, **GREEDY).tokens
    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(3)]
        fork = session.fork()
        tokens += [next(reply).token for _ in range(2)]
        session.save(tmp_path / "one.session")
        tokens.append(next(reply).token)
        session.grow(128)
        tokens.append(next(reply).token)
        assert session.logits.argmax() == want[len(tokens) - len(session.pending)]
        tokens += [chunk.token for chunk in reply]
        assert tokens == want
        check(model, fork, [*IDS, *want[:3]])
        check(model, model.load_session(tmp_path / "one.session"), [*IDS, *want[:5]])


def test_a_session_that_goes_on_without_its_reply(model: pyturbo.Model) -> None:
    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(3)]
        session.prefill([*session.pending, 8])
        with pytest.raises(StateError, match="went on without this reply"):
            next(reply)
        check(model, session, [*IDS, *tokens, 8])


def test_a_reply_after_a_reply_and_a_rewind(model: pyturbo.Model) -> None:
    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **TOP_K)
        first = [next(reply).token for _ in range(4)]
        second = model.generate([], 3, session=session, **GREEDY).tokens
        check(model, session.fork(), [*IDS, *first, *second])
        session.rewind(len(IDS))
        check(model, session, IDS)


def test_replies_that_take_turns(model: pyturbo.Model) -> None:
    """They share a program, and so the memory in which a step leaves what it has found."""
    options = [GREEDY, TOP_K, GREEDY]
    prompts = [IDS, [3, 4], [9]]
    want = [model.generate(prompt, 6, **each).tokens for prompt, each in zip(prompts, options)]
    replies = [model.stream(prompt, 6, **each) for prompt, each in zip(prompts, options)]
    got = list(zip(*([chunk.token for chunk in each] for each in zip(*replies))))
    assert [list(tokens) for tokens in got] == want


INTERRUPTED = ["lead.go_on", "lead._go_on", "lead._begin", "onward.Onward.begin", "onward.Begun.found"]


@pytest.fixture(scope="module")
def greedy(model: pyturbo.Model) -> list[int]:
    """The tokens of a greedy reply with its prompt."""
    return [*IDS, *model.generate(IDS, 12, **GREEDY).tokens]


@pytest.mark.parametrize("where", INTERRUPTED)
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_loses_nothing(
    model: pyturbo.Model, greedy: list[int], monkeypatch: pytest.MonkeyPatch, where: str, after: bool
) -> None:
    """Before or after each of the calls of a step, or of its replay where no step leads."""
    modules = {"lead": lead, "onward": onward}
    module, *path, name = where.split(".")
    owner = getattr(modules[module], path[0]) if path else modules[module]
    if not is_onward(model):
        owner, name = Session, "_replay"
    call = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        if after:
            call(*args)
        raise KeyboardInterrupt

    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(3)]
        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(reply)
        read = [*session.tokens.tolist(), *session.pending]
        assert read[: len(IDS) + 3] == [*IDS, *tokens]
        assert read == greedy[: len(read)]
        fork = session.fork()
        assert model.generate([], 2, session=fork, **GREEDY).tokens == greedy[len(read) : len(read) + 2]
        check(model, session, read)


def test_a_reply_that_is_cancelled(model: pyturbo.Model) -> None:
    """The token that is being read is yielded before the reply ends."""
    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(3)]
        reply.cancel()
        tokens += [chunk.token for chunk in reply]
        assert reply.cancelled
        assert [*session.tokens, *session.pending] == [*IDS, *tokens]
        check(model, session, [*IDS, *tokens])


def test_a_model_that_is_closed_before_its_session(folder: Path, device: pyturbo.Device) -> None:
    model = pyturbo.load(folder, device)
    session = model.session(64)
    reply = model.stream(IDS, 12, session=session, **GREEDY)
    for _ in range(3):
        next(reply)
    with model.runner.program(64, 1, "last") as (_, graph):
        gone = weakref.ref(graph)
    del graph
    reply.close()
    model.close()
    gc.collect()
    assert gone() is None
    session.close()


def test_logprobs_at_the_end_of_a_reply(folder: Path, tmp_path: Path, device: pyturbo.Device) -> None:
    """Where the prefix cache keeps the session, too, after the token that ends it."""
    with pyturbo.load(folder, device) as plain:
        tokens = plain.generate(IDS, 6, **GREEDY).tokens
    path = write_model(tmp_path / "model", layers=2, eos_token_id=tokens[3])
    with pyturbo.load(path, device) as model, Engine(model, context=64) as engine:
        for _ in range(2):
            reply = engine.submit(IDS, max_tokens=12, temperature=0, logprobs=2).result()
            assert reply.finish_reason == "stop"
            assert [top[0][0] for top in reply.top] == reply.tokens == tokens[: len(reply.tokens)]


def test_only_forbidden_tokens_are_left(model: pyturbo.Model) -> None:
    values = np.array([3.0, *[-np.inf] * 9], np.float32)
    top = TopLogits(values, np.arange(10, dtype=np.int32), 1.0, 404)
    with pytest.raises(ArgumentError, match="a token that may be drawn, got 3.0 as the largest"):
        onward.Lead(None, 1, top).choice(
            np.array([0]), Sampler().sample_top(top, np.full(13, 0xFFFFFFFE, np.uint32))
        )


def test_logits_that_are_not_finite_end_a_reply(model: pyturbo.Model) -> None:
    with model.session(64) as session:
        reply = model.stream(IDS, 12, session=session, **GREEDY)
        for _ in range(3):
            next(reply)
        session.logits  # noqa: B018  # waits for what is at work
        state = session._state
        for name in state.layout.pieces:
            if name.endswith("memory"):
                piece = state.layout.piece(state.block, name)
                piece.write(np.full(piece.shape, np.nan, np.float32))
        with pytest.raises(ArgumentError, match="logits: expected finite values or -inf.* got (nan|NaN at)"):
            for _ in reply:
                pass


def test_two_replies_of_an_engine_and_one(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One leads when another one comes, and again when that is over."""
    led: list[bool] = []

    go_on = lead.go_on

    def watched(session: Session, token: int, rules: Any) -> None:
        go_on(session, token, rules)
        led.append(session._leads is not None)

    monkeypatch.setattr(lead, "go_on", watched)
    want = [model.generate(prompt, count, **GREEDY).tokens for prompt, count in ((IDS, 20), ([3, 4], 4))]
    with Engine(model, context=64) as engine:
        first = engine.submit(IDS, max_tokens=20, **GREEDY)
        chunks = [next(first) for _ in range(3)]
        second = engine.submit([3, 4], max_tokens=4, **GREEDY)
        assert second.result().tokens == want[1]
        assert [chunk.token for chunk in (*chunks, *first)] == want[0]
    assert any(led) == is_onward(model)


def test_the_prefix_cache_knows_the_end(model: pyturbo.Model) -> None:
    with Engine(model, context=64) as engine:
        tokens = engine.submit(IDS, max_tokens=6, **GREEDY).result().tokens
        again = engine.submit([*IDS, *tokens, 8], max_tokens=3, **GREEDY).result()
    with model.session(64) as session:
        session.prefill(IDS)
        for token in tokens:
            session.step(token)
        want = model.generate([8], 3, session=session, **GREEDY).tokens
    assert again.tokens == want


def test_streamed_experts_wait_for_each_token(tmp_path: Path, device: pyturbo.Device) -> None:
    _, packed = write_packed(tmp_path)
    with streamed(packed, device.name, 8) as model, model.session(64) as session:
        reply = model.stream(IDS, 8, session=session, **GREEDY)
        tokens = [next(reply).token for _ in range(4)]
        assert session.pending == tokens[-1:]
