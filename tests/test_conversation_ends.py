"""Turns of a conversation that do not end as they should: left, cancelled, interrupted, overtaken."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pyturbo
from pyturbo.conversation import Conversation
from pyturbo.errors import ArgumentError, StateError
from text.tiny_chat import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    return pyturbo.load(write_model(tmp_path_factory.mktemp("ends") / "model", layers=2))


def check(conversation: Conversation) -> None:
    """A next turn reads what one reads that knows nothing but the messages."""
    fresh = Conversation(conversation.model, conversation.session.context)
    fresh.messages, fresh._text = list(conversation.messages), None
    read = []
    for each in (conversation, fresh):
        list(each.reply("And then?", max_tokens=3))
        prompt = [*map(int, each.session.tokens[: each.reply_start])]
        read.append(each.model.tokenizer.decode(prompt, skip_special=False))
    assert read[0] == read[1]
    assert conversation.messages[:-1] == fresh.messages[:-1]


def test_the_next_turn_ends_one_that_was_left(model: pyturbo.Model) -> None:
    conversation = Conversation(model, 256)
    first = conversation.reply("aaa", max_tokens=20)
    begun = [next(first), next(first)]
    list(conversation.reply("bbb", max_tokens=3))
    contents = [message["content"] for message in conversation.messages]
    assert contents[0] == "aaa"
    assert contents[1].startswith(begun[0].text)
    assert contents[2] == "bbb"
    assert list(first) == []
    check(conversation)


def test_a_turn_that_never_began_leaves_nothing(model: pyturbo.Model) -> None:
    conversation = Conversation(model, 256)
    first, second = conversation.reply("aaa", max_tokens=3), conversation.reply("bbb", max_tokens=3)
    assert list(first) == []
    assert len(list(second)) == 3
    assert conversation.messages[0]["content"] == "bbb"
    assert len(conversation.messages) == 2
    check(conversation)


def test_beginning_anew_amid_a_reply(model: pyturbo.Model, tmp_path: Path) -> None:
    conversation = Conversation(model, 256, system="Be brief.")
    list(conversation.reply("Hello", max_tokens=3))
    conversation.save(tmp_path / "chat.session")
    saved = list(conversation.messages)
    reply = conversation.reply("aaa", max_tokens=20)
    next(reply)
    conversation.reset()
    reply.close()
    assert [message["role"] for message in conversation.messages] == ["system"]
    assert conversation.session.position == 0
    reply = conversation.reply("aaa", max_tokens=20)
    next(reply)
    other = Conversation.load(model, tmp_path / "chat.session")
    assert other.messages == saved
    check(other)
    conversation.close()
    assert list(reply) == []
    with pytest.raises(StateError, match="the session is closed"):
        conversation.reply("aaa")
    for use in (conversation.reset, conversation.fork, lambda: conversation.save(tmp_path / "b.session")):
        with pytest.raises(StateError, match="the session is closed"):
            use()
    assert repr(conversation) == "Conversation(closed)"
    conversation.close()


def test_nothing_is_kept_amid_a_reply(model: pyturbo.Model, tmp_path: Path) -> None:
    conversation = Conversation(model, 256)
    reply = conversation.reply("aaa", max_tokens=20)
    next(reply)
    for call in (conversation.fork, lambda: conversation.save(tmp_path / "chat.session")):
        with pytest.raises(StateError, match="is under way: take it to its end, or close it"):
            call()
    reply.close()
    assert conversation.fork().messages == conversation.messages
    conversation.save(tmp_path / "chat.session")
    check(conversation)


def test_another_thread_is_refused(model: pyturbo.Model) -> None:
    conversation, errors = Conversation(model, 256), []
    reply = conversation.reply("aaa", max_tokens=6)
    next(reply)

    def say() -> None:
        try:
            conversation.reply("bbb")
        except StateError as error:
            errors.append(str(error))

    thread = threading.Thread(target=say)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert len(list(reply)) == 5
    assert conversation.messages[0]["content"] == "aaa"
    check(conversation)


def test_a_cancelled_turn_says_so(model: pyturbo.Model) -> None:
    conversation = Conversation(model, 256)
    reply = conversation.reply("aaa", max_tokens=20)
    begun = [next(reply), next(reply)]
    reply.cancel()
    assert list(reply) == []
    assert reply.cancelled
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]
    assert conversation.messages[1]["content"].startswith(begun[0].text)
    check(conversation)
    before = list(conversation.messages)
    reply = conversation.reply("never read", max_tokens=20)
    reply.cancel()
    assert list(reply) == []
    assert reply.cancelled
    assert conversation.messages == before  # its prompt was not read
    assert not conversation._changes
    check(conversation)


def test_an_interrupt_amid_the_end_forgets_what_was_read(
    model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(model, 256)
    list(conversation.reply("Hello", max_tokens=3))
    before = list(conversation.messages)
    reply = conversation.reply("aaa", max_tokens=20)
    next(reply)

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pyturbo.Tokenizer, "decode_chat", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reply.close()
    assert conversation.messages == before
    check(conversation)


def test_a_session_that_went_on_by_itself_ends_the_turn(model: pyturbo.Model) -> None:
    conversation = Conversation(model, 256)
    reply = conversation.reply("aaa", max_tokens=20)
    conversation.session.step(5)
    with pytest.raises(StateError, match="the session went on without this turn"):
        next(reply)
    reply = conversation.reply("aaa", max_tokens=20)
    next(reply)
    conversation.session.step(5)
    with pytest.raises(StateError, match="the session went on without this reply"):
        next(reply)
    assert conversation.messages == []
    check(conversation)


def test_notes_of_the_caller_stay(model: pyturbo.Model, tmp_path: Path) -> None:
    conversation = Conversation(model, 160)
    conversation.session.notes["title"] = "Numbers"
    for _ in range(6):
        list(conversation.reply("What is next?", max_tokens=4))
    assert conversation.forgotten
    conversation.save(tmp_path / "chat.session")
    assert conversation.session.notes["title"] == "Numbers"
    other = Conversation.load(model, tmp_path / "chat.session")
    assert other.session.notes["title"] == "Numbers"


def test_messages_of_every_kind_are_loaded_again(model: pyturbo.Model, tmp_path: Path) -> None:
    conversation = Conversation(model, 256)
    conversation.messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "clock"}]},
        {"role": "tool", "content": "Noon."},
    ]
    conversation.save(tmp_path / "chat.session")
    other = Conversation.load(model, tmp_path / "chat.session")
    assert other.messages == conversation.messages


def test_what_is_left_out_is_found_quickly(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation(model, 400)
    words = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    conversation.messages = words * 200
    sessions, renderings = [], []
    monkeypatch.setattr(pyturbo.Model, "session", lambda *arguments: sessions.append(arguments))
    chat = pyturbo.Tokenizer.chat
    monkeypatch.setattr(pyturbo.Tokenizer, "chat", lambda *a, **k: (renderings.append(a), chat(*a, **k))[1])
    reply = conversation.reply("And now?", max_tokens=4)
    assert sessions == []
    assert len(renderings) < 16
    assert len(list(reply)) == 4
    assert 300 < conversation.forgotten < 400
    assert conversation.session.position < 250


def test_wrong_arguments(model: pyturbo.Model) -> None:
    with pytest.raises(ArgumentError, match="chat: model: expected a Model, got str"):
        Conversation("x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="chat: system: expected text, got int"):
        Conversation(model, system=5)  # type: ignore[arg-type]
