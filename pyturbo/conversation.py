"""A chat of several turns over one session."""

from __future__ import annotations

import copy
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NoReturn

from pyturbo._convert import index
from pyturbo.errors import ArgumentError, FormatError, StateError, TurboError
from pyturbo.generation import Chunk, Stats
from pyturbo.model import Model
from pyturbo.session import Session
from pyturbo.text.chat_text import ChatText

Message = dict[str, Any]

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class _Turn:
    messages: list[Message]
    rendered: ChatText
    first: list[int]  # tokens to read before the state is kept; none where it is not
    kept: ChatText  # the text up to there
    stats: Stats


@dataclass(frozen=True)
class _Plan:
    """What a session has to read for a turn."""

    session: Session
    rendered: ChatText
    read: ChatText  # what the session has read of it
    kept: ChatText  # what it has read when its state is kept
    first: list[int]  # tokens to read up to there
    ids: list[int]  # and after

    @property
    def start(self) -> int:
        """Where the reply begins, in tokens."""
        return self.session.position + len(self.session.pending) + len(self.first) + len(self.ids)


class Conversation:
    """Messages, and a session that has read them. A turn reads only what is new.

    For each turn the template renders all messages. Where that begins with the text that the session has
    read, the rest is read. A template may change what was said before, such as one that leaves out earlier
    thoughts: then the session begins anew, once, and from there on a copy of the state before each reply is
    kept, so that only the changed reply is read again.

    A conversation that outgrows its context goes on: the oldest messages are left out, the system message
    never. The others are then read again, so half of the context is made free at once.

    Attributes:
        model: The model; its checkpoint has a chat template.
        session: What it has read, and remembers.
        messages: Everything said so far.
        forgotten: How many of them, after the system message, are left out by now.
        reread: How many tokens the last turn read again.
        reply_start: Where the last reply begins, in tokens.
    """

    def __init__(self, model: Model, context: int | None = None, system: str | None = None) -> None:
        if model.tokenizer.chat_template is None:
            raise ArgumentError("chat: the checkpoint has no chat template; it can only continue a text")
        self.model = model
        self.session = model.session(min(8192, model.max_context) if context is None else context)
        self.reread, self.reply_start, self.forgotten = 0, 0, 0
        self._system = system
        #: What the session has read; None where it stopped amid a prompt.
        self._text: ChatText | None = ChatText("")
        self._changes = False  # whether the template has changed what was said before
        self._kept: tuple[Session, ChatText] | None = None  # before the last reply, and the text up to there
        self.messages: list[Message] = self._first()

    def __repr__(self) -> str:
        position, context = self.session.position, self.session.context
        return f"Conversation(messages={len(self.messages)}, position={position}, context={context})"

    def reply(self, text: str, *, stats: Stats | None = None, **options: Any) -> Generator[Chunk, None, None]:
        """Says `text`; the answer, one chunk a token. The options are those of `Model.stream`.

        What is wrong with them, or does not fit, is an error here and changes nothing. An answer that is not
        taken to its end, by closing it or by an interrupt, is part of the conversation as far as it came.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        with self.session.guard.use():  # a reply in another thread is refused before anything changes
            forgotten, plan = self._fitting_plan(messages, options.get("max_tokens"))
        session = plan.session
        stats = Stats() if stats is None else stats
        chunks = self.model.stream(plan.ids, **options, session=session, stats=stats)
        self.reread = 0
        if session is not self.session:
            self.reread = max(0, self.session.position - session.position)
            self._changes = self._changes or forgotten == self.forgotten
            self.session, self._kept = session, None
        self._text, self.reply_start, self.forgotten = plan.read, plan.start, forgotten
        return self._answer(_Turn(messages, plan.rendered, plan.first, plan.kept, stats), chunks)

    def fork(self) -> Conversation:
        """An independent copy. `copy.copy` and `copy.deepcopy` do the same."""
        other = object.__new__(Conversation)
        other.__dict__ |= self.__dict__
        other.session, other.messages = self.session.fork(), copy.deepcopy(self.messages)
        other._kept = self._kept and (self._kept[0].fork(), self._kept[1])
        return other

    def __copy__(self) -> Conversation:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Conversation:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise StateError("a conversation cannot be pickled: save(path) keeps it, load(path) reads it")

    def reset(self) -> None:
        """Begins anew, with the system message alone."""
        self.session, self._text, self._kept = self.model.session(self.session.context), ChatText(""), None
        self.messages, self.reread, self.forgotten = self._first(), 0, 0

    def save(self, path: str | PathLike[str]) -> None:
        """One file: the session, with the messages among its notes."""
        breaks = [] if self._text is None else list(self._text.breaks)
        self.session.notes = {
            "messages": self.messages,
            "forgotten": self.forgotten,
            "text": self._text,
            "breaks": breaks,
        }
        self.session.save(path)

    def load(self, path: str | PathLike[str], context: int | None = None) -> None:
        """Goes on exactly where `save` was called; `context` gives it other room."""
        session = self.model.load_session(path, context)
        messages, text, breaks = (session.notes.get(name) for name in ("messages", "text", "breaks"))
        if not _are_messages(messages) or not (text is None or isinstance(text, str)):
            raise FormatError(f"{path}: expected the messages of a chat, found a session without them")
        forgotten = session.notes.get("forgotten", 0)
        if type(forgotten) is not int or not 0 <= forgotten <= len(messages or ()):
            raise FormatError(f"{path}: forgotten: expected a count of its messages, got {forgotten!r}")
        self.session, self.messages, self.forgotten = session, list(messages or ()), forgotten
        self._text = None if text is None else ChatText(text, _places(breaks, len(text)))
        self._kept, self.reread = None, 0
        first = self.messages[0] if self.messages else {}
        self._system = first["content"] if first.get("role") == "system" else None

    def _first(self) -> list[Message]:
        return [] if self._system is None else [{"role": "system", "content": self._system}]

    def _fitting_plan(self, messages: list[Message], max_tokens: Any) -> tuple[int, _Plan]:
        """How many messages to leave out so that a reply has room, and the plan for the others."""
        context = self.session.context
        room = min(256 if max_tokens is None else index("max_tokens", max_tokens, least=1), context // 8)
        forgotten, plan = self.forgotten, self._plan(messages, self.forgotten)
        if plan.start + room > context:
            for forgotten in self._turns(messages):
                plan = self._plan(messages, forgotten)
                if plan.start <= context // 2:
                    break
        if plan.start > context:
            raise ArgumentError(f"chat: expected at most {context} tokens, the context, got {plan.start}")
        return forgotten, plan

    def _turns(self, messages: list[Message]) -> list[int]:
        """The counts of messages that can be left out, beyond those that are: up to what a user said."""
        begin = _systems(messages)
        users = [i - begin for i, message in enumerate(messages) if message["role"] == "user"]
        return [count for count in users if count > self.forgotten]

    def _plan(self, messages: list[Message], forgotten: int) -> _Plan:
        begin = _systems(messages)
        shown = [*messages[:begin], *messages[begin + forgotten :]]
        rendered = self.model.tokenizer.chat(shown)
        session, read = self._known(rendered)
        changes = self._changes or (session is not self.session and forgotten == self.forgotten)
        kept = self._before_reply(shown, rendered) if changes else read
        first, ids = self._unread(session, rendered, len(read), len(kept))
        return _Plan(session, rendered, read, rendered[: len(kept)], first, ids)

    def _known(self, rendered: ChatText) -> tuple[Session, ChatText]:
        """A session that has read the beginning of a text, and that beginning; at worst a new one."""
        for session, text in ((self.session, self._text), self._kept or (self.session, None)):
            if text is not None and rendered.begins_with(text):
                return session, text
        return self.model.session(self.session.context), ChatText("")

    def _before_reply(self, messages: list[Message], rendered: ChatText) -> ChatText:
        """What of a rendered text is there before the reply is asked for: it will not change."""
        text = self.model.tokenizer.chat(messages, generate=False)
        return text if rendered.begins_with(text) and rendered != text else ChatText("")

    def _unread(
        self, session: Session, rendered: ChatText, read: int, kept: int
    ) -> tuple[list[int], list[int]]:
        """The tokens to read up to character `kept`, and those after; `read` characters have been read."""
        kept = max(read, kept)
        encode = self.model.tokenizer.encode
        first, ids = encode(rendered[read:kept], special=False), encode(rendered[kept:], special=False)
        if session.pending and session.pending[0] in self.model.eos_ids:
            lead = first or ids
            if lead[:1] == session.pending:  # the template ends a reply as the model did
                del lead[0]
            else:
                session.leave(None)
        return first, ids

    def _answer(self, turn: _Turn, chunks: Iterator[Chunk]) -> Generator[Chunk, None, None]:
        text, finished, session = "", False, self.session
        try:
            seconds = self._read_first(turn)
            for number, chunk in enumerate(chunks):
                if number == 0:
                    turn.stats.prompt_tokens += len(turn.first)
                    turn.stats.prefill_seconds += seconds
                text += chunk.text
                finished = chunk.finish_reason is not None
                yield chunk
        except TurboError:
            self._text = None
            raise
        finally:
            if session.position < self.reply_start:
                self._text = None
            elif self._text is not None:
                ids = [*map(int, session.tokens[self.reply_start :]), *session.pending]
                ids = ids[:-1] if ids and ids[-1] in self.model.eos_ids else ids
                self._text = turn.rendered + self.model.tokenizer.decode_chat(ids)
                text = text if finished else self._decode(ids)
                self.messages = [*turn.messages, {"role": "assistant", "content": text}]

    def _read_first(self, turn: _Turn) -> float:
        """Reads up to where the state is kept. Seconds."""
        begin = time.perf_counter()
        if turn.first:
            self.session.prefill([*self.session.pending, *turn.first])
            self._kept = (self.session.fork(), turn.kept)
        return time.perf_counter() - begin

    def _decode(self, ids: Sequence[int]) -> str:
        detokenizer = self.model.tokenizer.detokenizer(continues=True)
        return "".join([*map(detokenizer.add, ids), detokenizer.finish()])


def _systems(messages: Sequence[Message]) -> int:
    """The number of system messages at the beginning."""
    return 1 if messages and messages[0]["role"] == "system" else 0


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
        for message in value
    )


def _places(value: Any, length: int) -> list[int]:
    """The breaks of a text of this length; none where a file has something else."""
    places = value if isinstance(value, list) else []
    if not all(type(place) is int and 0 < place < length for place in places):
        return []
    return sorted(set(places))
