"""A chat of several turns over one session."""

from __future__ import annotations

import copy
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from pyturbo._messages import shown
from pyturbo.engine.generation import Chunk, Options, ReplyOptions, Stats
from pyturbo.engine.reply import Reply, read_before
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, CancelledError, FormatError, StateError, TurboError
from pyturbo.model import Model
from pyturbo.text import chat
from pyturbo.text.chat_text import ChatText
from pyturbo.text.dialects import Tools, as_functions, repeated_ids

if TYPE_CHECKING:
    from typing_extensions import Unpack

Message = dict[str, Any]


@dataclass(frozen=True)
class _Plan:
    """The tokens that a turn reads, decided before anything changes."""

    messages: list[Message]
    forgotten: int  # how many of them, after the system message, are left out
    changes: bool  # whether the template has changed earlier text, now or before
    rendered: ChatText
    session: Session
    position: int  # of the session
    whole: bool  # whether the tokens below are the whole conversation, not its continuation
    pending: list[int]  # of a continuation: the token that the session has sampled but not read
    first: list[int]  # tokens to read before the state is copied; empty if it is not
    kept: ChatText  # the text up to there
    ids: list[int]  # the tokens after them

    @property
    def start(self) -> int:
        """The position at which the reply begins."""
        before = 0 if self.whole else self.position + len(self.pending)
        return before + len(self.first) + len(self.ids)


class Conversation:
    """Messages, and a session that has read them. A turn reads only what is new.

    For each turn the template renders all messages. If the result begins with the text that the session has
    read, only the rest is read. A template may change earlier text, for example by leaving out earlier
    thoughts. Then the session is read again, once, and from then on a copy of the state before each reply is
    kept, so that only the changed reply is read again.

    A conversation that outgrows its context goes on: the oldest messages are left out, but never the system
    message. The others are then read again, so half of the context is freed at once.

    Attributes:
        model: The model; its checkpoint has a chat template.
        session: The state after the messages read so far.
        messages: Everything said so far.
        tools: The functions that replies may call.
        forgotten: How many of them, after the system message, are left out now.
        reread: How many tokens the last turn read again.
        reply_start: The position at which the last reply begins.
    """

    def __init__(
        self,
        model: Model,
        context: int | None = None,
        system: str | None = None,
        tools: Tools | None = None,
    ) -> None:
        """Start a chat, with room for `context` tokens as in `Model.session`, and a system message.

        `tools` are those of `Model.stream`.
        """
        _check_model(model)
        as_functions(tools)
        if not (system is None or isinstance(system, str)):
            raise ArgumentError(f"chat: system: expected text, got {type(system).__name__}")
        self._begin(model, model.session(context), system, tools)

    def _begin(self, model: Model, session: Session, system: str | None, tools: Tools | None) -> None:
        self.model, self.session, self.tools = model, session, tools
        self.reread, self.reply_start, self.forgotten = 0, 0, 0
        self._system = system
        #: The text that the session has read; None if that is not known, during a turn or after an early end.
        self._text: ChatText | None = ChatText("")
        self._changes = False  # whether the template has changed earlier text
        self._kept: tuple[Session, ChatText] | None = None  # before the last reply, and the text up to there
        self._call_ids: list[str] = []  # of the last reply
        self._last: Callable[[], Reply | None] = lambda: None  # a weak reference
        self.messages: list[Message] = self._first()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End an answer that is under way, and close the session."""
        if not self.session.closed:
            self._end_turn()
        self._kept = None
        self.session.close()

    def __repr__(self) -> str:
        if self.session.closed:
            return "Conversation(closed)"
        position, context = self.session.position, self.session.context
        return f"Conversation(messages={len(self.messages)}, position={position}, context={context})"

    def reply(
        self,
        text: str | Sequence[Message],
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        logprobs: int = 0,
        stats: Stats | None = None,
        **more: Unpack[ReplyOptions],
    ) -> Reply:
        """Say `text` and return the answer, one chunk per token. The options are those of `Model.stream`.

        Instead of text there may be messages, such as the results of tool calls:
        [{"role": "tool", "tool_call_id": ..., "name": ..., "content": ...}].

        A wrong option, or a text that does not fit, is an error here and changes nothing. An answer that ends
        early, because it is closed, cancelled or interrupted, or because the next turn begins, is part of the
        conversation up to that point. If it ends before its first token, the message is dropped too.
        """
        said: Any = [{"role": "user", "content": text}] if isinstance(text, str) else text
        if not isinstance(text, str) and not (_are_messages(said) and said):
            raise ArgumentError(f"reply: text: expected text or messages, got {shown(text)}")
        self._end_turn()
        chosen = Options(
            max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop, logprobs, **more
        ).with_defaults(self.model.sampling)
        dialect = self.model.tokenizer.dialect
        stats = Stats() if stats is None else stats
        plan = self._fitting_plan([*self.messages, *said], chosen.max_tokens)
        chosen = self.model.in_chat(chosen, plan.rendered)
        whole = plan.whole and not plan.first
        chunks = self.model._chunks(plan.session, plan.ids, chosen, stats, whole=whole)
        self._call_ids = []
        parser = dialect.parser(self.tools, plan.rendered, repeated_ids(self._call_ids))
        reply = Reply(plan.session, self._answer(plan, chunks, stats), stats, parser)
        self.reply_start = plan.start
        self._last = weakref.ref(reply)
        return reply

    def fork(self) -> Conversation:
        """Return an independent copy. `copy.copy` and `copy.deepcopy` do the same."""
        self._require_end()
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
        raise StateError(
            "a conversation cannot be pickled: save(path) keeps it, Conversation.load(model, path) reads it"
        )

    def reset(self) -> None:
        """Start again with the system message alone."""
        self._end_turn()
        self.session, self._text, self._kept = self.model.session(self.session.context), ChatText(""), None
        self.messages, self.reread, self.reply_start, self.forgotten = self._first(), 0, 0, 0

    def save(self, path: str | PathLike[str]) -> None:
        """Write one file: the session, with the messages among its notes. `Conversation.load` reads it."""
        self._require_end()
        breaks = [] if self._text is None else list(self._text.breaks)
        self.session.notes |= {
            "messages": self.messages,
            "forgotten": self.forgotten,
            "text": self._text,
            "breaks": breaks,
            "tools": self.tools,
        }
        self.session.save(path)

    @classmethod
    def load(cls, model: Model, path: str | PathLike[str], context: int | None = None) -> Conversation:
        """Read the conversation that `save` wrote. `context` gives it other room; None is the room it had."""
        _check_model(model)
        session = model.load_session(path, context)
        notes = session.notes
        messages, text, forgotten = notes.get("messages"), notes.get("text"), notes.get("forgotten", 0)
        if not _are_messages(messages) or not (text is None or isinstance(text, str)):
            raise FormatError(f"{path}: expected the messages of a chat, found a session without them")
        if type(forgotten) is not int or not 0 <= forgotten <= len(messages):
            raise FormatError(f"{path}: forgotten: expected a count of its messages, got {shown(forgotten)}")
        tools = notes.get("tools")
        try:
            as_functions(tools)
        except ArgumentError as error:
            raise FormatError(f"{path}: {error}") from None
        self = object.__new__(cls)
        self._begin(model, session, messages[0]["content"] if _systems(messages) else None, tools)
        self.messages, self.forgotten, self.reply_start = list(messages), forgotten, session.position
        self._text = None if text is None else ChatText(text, _places(notes.get("breaks"), len(text)))
        return self

    def _end_turn(self) -> None:
        """End an answer that is under way. It is an error if another thread runs it."""
        self.session.require_free()
        reply = self._last()
        if reply is not None:
            reply.close()

    def _require_end(self) -> None:
        reply = self._last()
        if reply is not None and not reply.ended:
            raise StateError("a reply of the conversation is under way: take it to its end, or close it")

    def _first(self) -> list[Message]:
        return [] if self._system is None else [{"role": "system", "content": self._system}]

    def _fitting_plan(self, messages: list[Message], max_tokens: int) -> _Plan:
        """Return the plan with the most messages that leaves room for a reply."""
        context = self.session.context
        plan = self._plan(messages, self.forgotten)
        turns = [count for count in _turns(messages) if count > self.forgotten]
        if turns and plan.start + min(max_tokens, context // 8) > context:
            fits = bisect_left(turns, True, key=lambda n: self._plan(messages, n).start <= context // 2)
            plan = self._plan(messages, turns[min(fits, len(turns) - 1)])
        if plan.start > context:
            raise ArgumentError(f"chat: expected at most {context} tokens, the context, got {plan.start}")
        return plan

    def _plan(self, messages: list[Message], forgotten: int) -> _Plan:
        begin = _systems(messages)
        visible = [*messages[:begin], *messages[begin + forgotten :]]
        rendered = self._rendered(visible, generate=True)
        session, read = self._known(rendered)
        whole = read is None
        anew = whole or session is not self.session
        changes = self._changes or (anew and self._text is not None and forgotten == self.forgotten)
        begin, keep = len(read or ""), len(read or "")
        if changes and not session.can_be_cut:
            keep = max(begin, len(self._before_reply(visible, rendered)))
        encode = self.model.tokenizer.encode
        first, ids = encode(rendered[begin:keep], special=False), encode(rendered[keep:], special=False)
        pending = [] if whole else session.pending
        if pending and pending[0] in self.model.eos_ids:
            if (first or ids)[:1] == pending:  # the template ends a reply as the model did
                del (first or ids)[0]
            else:
                pending = []
        kept = rendered[:keep]
        return _Plan(
            messages,
            forgotten,
            changes,
            rendered,
            session,
            session.position,
            whole,
            pending,
            first,
            kept,
            ids,
        )

    def _rendered(self, messages: list[Message], generate: bool) -> ChatText:
        return self.model.tokenizer.chat(messages, generate, tools=as_functions(self.tools))

    def _known(self, rendered: ChatText) -> tuple[Session, ChatText | None]:
        """Return a session that has read the beginning of a text, and that beginning, or None."""
        for session, text in ((self.session, self._text), self._kept or (self.session, None)):
            if text is not None and rendered.begins_with(text):
                return session, text
        return self.session, None

    def _before_reply(self, messages: list[Message], rendered: ChatText) -> ChatText:
        """Return the part of a rendered text that comes before the reply: later turns do not change it."""
        text = self._rendered(messages, generate=False)
        return text if rendered.begins_with(text) and rendered != text else ChatText("")

    def _answer(self, plan: _Plan, chunks: Iterator[Chunk], stats: Stats) -> Generator[Chunk, None, None]:
        """Yield the chunks of a turn. Until it ends, the text that the session has read counts as unknown."""
        if plan.session.position != plan.position:
            raise StateError("the session went on without this turn")
        had = min(self.session.position, plan.start)
        plan.session.notes = self.session.notes
        self._text, self._changes, self.forgotten = None, plan.changes, plan.forgotten
        self.session, self.reread = plan.session, 0
        answer, finished, broken = "", False, False
        runner = self.model.runner
        before = runner.expert_use()
        try:
            known, seconds = self._read_first(plan)
            first = runner.expert_use(before)
            for number, chunk in enumerate(chunks):
                if number == 0:
                    self.reread = max(0, had - max(known, stats.cached_tokens))
                    stats.prompt_tokens += len(plan.first)
                    stats.prefill_seconds += seconds
                    if first is not None and stats.prefill_experts is not None:
                        stats.prefill_experts += first
                answer += chunk.text
                finished = chunk.finish_reason is not None
                yield chunk
        except TurboError as error:
            broken = not isinstance(error, CancelledError)
            raise
        finally:
            if not broken:
                self._take_over(plan, answer if finished else None)

    def _read_first(self, plan: _Plan) -> tuple[int, float]:
        """Read up to where the state is kept. Returns the number of tokens that were known, and seconds."""
        begin, session = time.perf_counter(), plan.session
        known = 0 if plan.whole else session.position
        if self._kept is not None and session is self._kept[0]:
            self._kept = None
        drop = not plan.whole and not plan.pending
        before = read_before(session, plan.first, anew=plan.whole, drop_pending=drop)
        if before is not None:
            self._kept = (before, plan.kept)
        return known, time.perf_counter() - begin

    def _take_over(self, plan: _Plan, answer: str | None) -> None:
        """Make a turn part of the conversation, if its prompt was read. None: decode the answer so far."""
        session = plan.session
        if session.closed or session.position < plan.start:
            return
        ids = [*map(int, session.tokens[plan.start :]), *session.pending]
        said_ids = ids[:-1] if ids and ids[-1] in self.model.eos_ids else ids
        content = self._decode(said_ids) if answer is None else answer
        # An end of the reply that was read, not only sampled, is part of the text that the session has read.
        text = plan.rendered + self.model.tokenizer.decode_chat(said_ids if session.pending else ids)
        new_id = repeated_ids(self._call_ids)
        said = self.model.tokenizer.dialect.remembered(content, self.tools, plan.rendered, new_id)
        self.messages, self._text = [*plan.messages, said], text

    def _decode(self, ids: Sequence[int]) -> str:
        markers = self.model.tokenizer.dialect.markers
        detokenizer = self.model.tokenizer.detokenizer(continues=True, markers=markers)
        return "".join([*map(detokenizer.add, ids), detokenizer.finish()])


def _check_model(model: Any) -> None:
    """Refuse anything but a model with a chat template."""
    if not isinstance(model, Model):
        raise ArgumentError(f"chat: model: expected a Model, got {type(model).__name__}")
    if model.tokenizer.chat_template is None:
        raise ArgumentError("chat: the checkpoint has no chat template; it can only continue a text")


def _systems(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    return 1 if messages and messages[0]["role"] == "system" else 0


def _turns(messages: Sequence[Message]) -> list[int]:
    """Return how many messages, after the system message, precede each message of a user."""
    begin = _systems(messages)
    return [i - begin for i, message in enumerate(messages) if message["role"] == "user" and i > begin]


def _are_messages(value: Any) -> TypeGuard[list[Message]]:
    if not isinstance(value, list):
        return False
    try:
        chat.check(value, {})
    except ArgumentError:
        return False
    return True


def _places(value: Any, length: int) -> list[int]:
    """Return the breaks of a text of this length; none if the file has something else."""
    places = value if isinstance(value, list) else []
    if not all(type(place) is int and 0 < place < length for place in places):
        return []
    return sorted(set(places))
