"""A session has one user at a time, can be stopped from anywhere, and is copied by forking."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import itertools
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from pyturbo._guard import Claim, Guard
from pyturbo.conversation import Conversation
from pyturbo.errors import ArgumentError, CancelledError, StateError
from text.tiny_chat import write_model

PROMPT = "It's the first time they'll see birds"
IDS = list(range(5, 205))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    return pyturbo.load(write_model(tmp_path_factory.mktemp("use") / "model", context=4096), threads=2)


def in_threads(work: Callable[[], Any], count: int = 3) -> tuple[list[Any], list[Exception]]:
    """What `work` gives, and raises, in several threads that begin together."""
    barrier, results, errors = threading.Barrier(count), [], []

    def run() -> None:
        barrier.wait()
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


def test_replies_in_several_threads_do_not_mix(model: pyturbo.Model) -> None:
    want = model.generate(PROMPT, max_tokens=40).tokens
    for _ in range(5):
        session = model.session(512)

        def reply(session: pyturbo.Session = session) -> list[int]:
            return model.generate(PROMPT, max_tokens=40, session=session).tokens

        results, errors = in_threads(reply)
        assert results[0] == want  # the first one is alone; a later one continues where it ended
        assert len(results) + len(errors) == 3
        assert all(type(error) is StateError and "in use" in str(error) for error in errors)


def test_a_second_reader_is_refused_at_once(model: pyturbo.Model) -> None:
    session = model.session(1024)
    reading = session.read(IDS * 4)
    first = next(reading)
    _, errors = in_threads(lambda: session.prefill(IDS))
    assert [type(error) for error in errors] == [StateError] * 3
    for call in (lambda: session.step(5), session.fork, lambda: session.save("never")):
        with pytest.raises(StateError, match="in use: expected one call, reply or read"):
            call()
    assert session.position == first
    assert list(reading)[-1] == 800
    assert session.logits.tobytes() == model.session(1024).prefill(IDS * 4).tobytes()


def test_threads_that_read_leave_a_position_they_account_for(model: pyturbo.Model) -> None:
    session = model.session(1024)
    results, errors = in_threads(lambda: session.prefill(IDS))
    assert all(type(error) is StateError for error in errors)
    assert session.position == len(IDS) * len(results) > 0


def test_a_reply_keeps_its_session_between_chunks(model: pyturbo.Model) -> None:
    session = model.session(512)
    chunks = model.stream(PROMPT, session=session)
    next(chunks)
    for use in (lambda: session.step(5), lambda: model.generate("no", session=session)):
        _, (error, *_) = in_threads(use, 1)
        assert "a reply in another thread is not at its end" in str(error)
    next(chunks)
    chunks.close()
    assert in_threads(lambda: session.step(5), 1)[1] == []
    other = model.stream(PROMPT, session=session)
    next(other)
    del other  # what nobody can ask for any more has no claim
    gc.collect()
    assert in_threads(lambda: session.step(5), 1)[1] == []


def test_one_reply_in_two_threads(model: pyturbo.Model) -> None:
    want = model.generate(PROMPT, max_tokens=60).tokens
    chunks, tokens = model.stream(PROMPT, max_tokens=60), []

    def take() -> None:
        while True:
            try:
                tokens.append(next(chunks).token)
            except StateError:
                continue
            except StopIteration:
                return

    assert in_threads(take)[1] == []
    assert sorted(tokens) == sorted(want)


def test_a_prefill_is_cancelled_from_another_thread(model: pyturbo.Model) -> None:
    session = model.session(2048)
    assert session.cancel() is False
    reading = session.read(IDS * 8)
    first = next(reading)
    canceller = threading.Thread(target=session.cancel)
    canceller.start()
    canceller.join()
    with pytest.raises(CancelledError):
        next(reading)
    assert session.position == first
    assert session.tokens.tolist() == (IDS * 8)[:first]
    # It goes on as if nothing had been.
    rest = session.prefill((IDS * 8)[first:])
    assert rest.tobytes() == model.session(2048).prefill(IDS * 8).tobytes()


def test_a_reply_is_cancelled_from_another_thread(model: pyturbo.Model) -> None:
    session = model.session(2048)
    chunks = model.stream(PROMPT, max_tokens=1000, session=session)
    tokens = []
    for chunk in chunks:
        tokens.append(chunk.token)
        if len(tokens) == 3:
            thread = threading.Thread(target=chunks.cancel)
            thread.start()
            thread.join()
    assert len(tokens) == 3
    assert chunks.cancelled
    assert session.pending == tokens[-1:]
    assert model.generate("", max_tokens=2, session=session).tokens  # it goes on
    early = model.stream(IDS * 8, session=model.session(2048))
    early.cancel()
    assert list(early) == []
    assert early.session.position == 0


def test_a_garbage_collection_lets_no_second_user_in() -> None:
    """It may begin wherever a user that enters allocates, and lets other threads run."""
    for number in range(4):
        guard, entered = Guard(), []
        first, second = guard.use(Claim()), guard.use()
        gc.collect()
        calls = itertools.count()

        def other(phase: str, _: dict[str, int], second: Any = second, entered: list[str] = entered) -> None:
            if phase == "start" and next(calls) == number:  # noqa: B023
                with contextlib.suppress(StateError):
                    second.__enter__()
                    entered.append("second")

        gc.callbacks.append(other)
        thresholds = gc.get_threshold()
        gc.set_threshold(1)
        try:
            with contextlib.suppress(StateError):
                first.__enter__()
                entered.append("first")
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks.remove(other)
        assert len(entered) == 1


def test_a_cancelled_completion_says_so(model: pyturbo.Model) -> None:
    session = model.session(2048)
    stop = threading.Event()

    def cancel() -> None:
        while not stop.is_set():
            session.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    completion = model.generate(PROMPT, max_tokens=1500, session=session)
    stop.set()
    thread.join()
    assert completion.finish_reason == "cancelled"
    assert len(completion.tokens) < 1500


def test_an_asynchronous_reply(model: pyturbo.Model) -> None:
    want = model.generate(PROMPT, max_tokens=20)

    async def both() -> list[str]:
        async def text() -> str:
            return "".join([chunk.text async for chunk in model.astream(PROMPT, max_tokens=20)])

        return list(await asyncio.gather(text(), text()))

    assert asyncio.run(both()) == [want.text] * 2


def test_an_asynchronous_reply_is_cancelled_with_its_task(model: pyturbo.Model) -> None:
    session = model.session(2048)

    async def cancelled() -> None:
        seen = asyncio.Event()

        async def endless() -> None:
            async for _ in model.astream(PROMPT, max_tokens=1500, session=session):
                seen.set()

        task = asyncio.create_task(endless())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert 0 < session.position < 1500
    position = session.position
    session.step(5)  # nothing runs any more
    assert session.position == position + 1


def test_an_asynchronous_reply_raises_what_is_wrong(model: pyturbo.Model) -> None:
    async def wrong() -> None:
        async for _ in model.astream(PROMPT, temperature=-1):
            pass

    with pytest.raises(ArgumentError, match="temperature"):
        asyncio.run(wrong())


def test_a_cancelled_reply_keeps_nobody_out(model: pyturbo.Model) -> None:
    session = model.session(512)
    for cancel in (lambda reply: reply.cancel(), lambda reply: session.cancel()):
        reply = model.stream(PROMPT, session=session)
        next(reply)
        cancel(reply)
        session.step(5)
        assert in_threads(lambda: session.step(6), 1)[1] == []
        assert session.rewind(session.position - 2) > 0
        with pytest.raises(StateError, match="went on without this reply"):
            next(reply)
        assert session.cancel() is False


def test_a_cancelled_reply_that_waits_ends(model: pyturbo.Model) -> None:
    reply = model.stream(PROMPT)
    next(reply)
    reply.cancel()
    assert not reply.ended
    assert list(reply) == []
    assert (reply.ended, reply.cancelled) == (True, True)


# Python reports and drops an interrupt that comes while an object is finalised.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_leaves_a_session_that_can_be_used(model: pyturbo.Model) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    session = model.session(512)
    session.prefill(IDS[:3])
    before = signal.signal(signal.SIGALRM, interrupt)
    random = np.random.default_rng(0)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.2e-3, 3e-3))
                for _ in model.stream([8], 400, session=session):
                    pass
            except KeyboardInterrupt:
                pass
            session.rewind(3)  # not in use, and whole
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert session.tokens.tolist() == IDS[:3]


def test_leaving_an_asynchronous_loop_ends_the_reply(model: pyturbo.Model) -> None:
    session = model.session(2048)

    async def leave() -> None:
        async with contextlib.aclosing(model.astream(PROMPT, max_tokens=1500, session=session)) as chunks:
            async for _ in chunks:
                break
        session.step(5)

    asyncio.run(leave())
    assert session.position < 1000


def test_an_event_loop_that_ends_early_ends_the_reply(model: pyturbo.Model) -> None:
    session = model.session(4096)
    loop = asyncio.new_event_loop()
    chunks = model.astream(IDS * 20, max_tokens=5, session=session)
    first = loop.create_task(chunks.__anext__())
    loop.run_until_complete(asyncio.sleep(0.05))
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(first)
    loop.close()
    del chunks, first
    gc.collect()
    for _ in range(500):  # the chunk of the prompt that was being read
        with contextlib.suppress(StateError):
            session.step(5)
            break
        time.sleep(0.02)
    assert session.position < 4000


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_reply_is_not_copied(model: pyturbo.Model, copied: Callable[[Any], Any]) -> None:
    with pytest.raises(StateError, match="a reply cannot be copied: fork its session"):
        copied(model.stream(PROMPT))


def test_notes_that_cannot_be_copied(model: pyturbo.Model) -> None:
    session = model.session(64)
    session.notes["lock"] = threading.Lock()
    with pytest.raises(ArgumentError, match="notes: expected what JSON can hold"):
        session.fork()


@pytest.mark.parametrize("stats", [5, []])
def test_stats_of_another_type(model: pyturbo.Model, stats: Any) -> None:
    for call in (model.stream, model.generate):
        with pytest.raises(ArgumentError, match="stats: expected a Stats, got"):
            call(PROMPT, stats=stats)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_fork(model: pyturbo.Model, copied: Callable[[Any], Any]) -> None:
    session = model.session(64)
    session.prefill(IDS[:9])
    session.notes["a"] = [1]
    other = copied(session)
    other.step(3)
    other.notes["a"].append(2)
    assert (session.position, other.position) == (9, 10)
    assert session.notes == {"a": [1]}
    assert not np.shares_memory(session.logits, other.logits)
    assert copied(model) is model


def test_a_copied_conversation_goes_its_own_way(model: pyturbo.Model) -> None:
    conversation = Conversation(model, context=512)
    list(conversation.reply("Hello", max_tokens=4))
    for other in (conversation.fork(), copy.copy(conversation), copy.deepcopy(conversation)):
        before = conversation.session.position, list(conversation.messages)
        list(other.reply("And now?", max_tokens=4))
        assert (conversation.session.position, conversation.messages) == before
        assert len(other.messages) == 4


def test_pickling_says_what_to_use(model: pyturbo.Model, tmp_path: Path) -> None:
    session = model.session(64)
    with pytest.raises(StateError, match="cannot be pickled: save"):
        pickle.dumps(session)
    with pytest.raises(StateError, match="cannot be pickled: pass its path"):
        pickle.dumps(model)
    with pytest.raises(StateError, match="cannot be pickled: save"):
        pickle.dumps(Conversation(model, context=64))
