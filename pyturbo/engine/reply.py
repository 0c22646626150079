"""One reply of a model: its chunks, from any thread, and as an asynchronous iterator."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pyturbo._guard import Claim
from pyturbo.engine.answer import Answer
from pyturbo.engine.chooser import Chooser, make_chooser
from pyturbo.engine.generation import Chunk, FinishReason, Options, Stats
from pyturbo.engine.lead import can_lead, read_on
from pyturbo.engine.onward import Rules
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, CancelledError, ContextError, StateError
from pyturbo.text import StopStrings, Tokenizer
from pyturbo.text.dialects import Dialect, Message, Part, ReplyParser, ReplyText


class Unread(NamedTuple):
    """Tokens that the session of a reply must have read before its next chunk.

    Attributes:
        ids: The tokens.
        rules: By which the tokens after a single one are drawn, where a device can go on by itself.
    """

    ids: NDArray[np.int32]
    rules: Rules | None = None


#: What a reply consists of.
Steps = Generator[Chunk | Unread, None, None]

#: Where beginnings of prompts are known from, and how many tokens of this one later turns do not change.
Prefixes = tuple[PrefixStore, int | None] | None


class Reply(Iterator[Chunk]):
    """The chunks of one reply, each as soon as it is known. `Model.stream` returns it.

    From its first chunk to its end the session belongs to it: another thread that uses the session gets a
    StateError; in the thread of the reply a new one takes over, and this one cannot go on.

    Attributes:
        session: The session that it advances.
        stats: Counts and times so far.
        cancelled: Whether `cancel` ended it.
    """

    def __init__(
        self,
        session: Session,
        chunks: Generator[Chunk, None, None],
        stats: Stats,
        parser: ReplyParser | None = None,
    ) -> None:
        """Take the chunks, and a parser that takes their text apart; without one all of it is text."""
        self.session, self.stats, self.cancelled = session, stats, False
        self._chunks, self._claim, self._ended = chunks, Claim(), False
        self._text = ReplyText(Dialect().parser() if parser is None else parser)

    def __repr__(self) -> str:
        state = ", cancelled" if self.cancelled else ""
        return f"Reply({self.stats.tokens} tokens{state}, {self.session!r})"

    def __next__(self) -> Chunk:
        if self._ended:
            raise StopIteration
        chunk = None
        with self.session._guard.use(self._claim):
            try:
                chunk = next(self._chunks, None)
                if chunk is not None:
                    self._text.add(chunk.text)
            except CancelledError:
                self.cancelled = True
            finally:
                if chunk is None or chunk.finish_reason is not None:
                    self._end()
        if chunk is None:
            raise StopIteration
        return chunk

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the reply instead of chunks: thoughts, text and tool calls.

        Examples:
            >>> model = pyturbo.load()
            >>> for part in model.stream("Once upon a time", max_tokens=2).parts():
            ...     print(part)
            Text(text=',')
            Text(text=' there')
        """
        yield from self._text.parts()
        for _ in self:
            yield from self._text.parts()
        yield from self._text.parts()

    @property
    def message(self) -> Message:
        """The reply so far: its text, thoughts and tool calls."""
        return self._text.message

    @property
    def ended(self) -> bool:
        """Whether there are no more chunks."""
        return self._ended

    def cancel(self) -> None:
        """End the reply, from any thread, after the token or the chunk of a prompt that is being read now."""
        self._claim.cancelled = True

    def close(self) -> None:
        """End the reply in the thread that runs it. The session can go on from there."""
        try:
            self._end()
        except ValueError:  # the generator is running
            raise StateError("close: the reply runs in another thread; cancel() ends it from here") from None

    def _end(self) -> None:
        self._chunks.close()
        self._text.end()
        self._ended = True
        self.session._guard.release(self._claim)

    def __copy__(self) -> NoReturn:
        raise StateError("a reply cannot be copied: fork its session, and begin another one there")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()


def require_room(session: Session, ids: Sequence[int], *, whole: bool) -> None:
    """Refuse tokens that do not fit. `whole` is that of `chunks_of`."""
    left = session.context - (0 if whole else session.position + len(session.pending))
    if left < 0 and not ids:
        raise ContextError(
            f"prompt: the context of {session.context} tokens is full; Session.grow makes room"
        )
    if len(ids) > left:
        rest = "a context" if whole else "the rest of a context"
        raise ContextError(
            f"prompt: expected at most {max(left, 0)} tokens, {rest} of {session.context}, got {len(ids)}"
        )


def chunks_of(session: Session, steps: Steps) -> Generator[Chunk, None, None]:
    """Return the chunks of a reply whose session reads alone, for a `Reply`, which holds the session."""
    for step in steps:
        if isinstance(step, Chunk):
            yield step
        else:
            read_on(session, *step)


def steps_of(
    session: Session,
    ids: Sequence[int],
    options: Options,
    stats: Stats,
    *,
    tokenizer: Tokenizer | None,
    eos_ids: Sequence[int],
    whole: bool,
    prefixes: Prefixes = None,
    chooser: Chooser | None = None,
) -> Steps:
    """Return the steps of the reply to `ids`. Who asks for them holds the session, and has it read.

    Without a tokenizer there is no text. `whole`: `ids` are the whole conversation, not what comes next; the
    session keeps the part of it that it has read, or takes what the store of `prefixes` has. Wrong options
    are an error here, not later. `chooser` is that of the options, if it has been made already.
    """
    if not isinstance(stats, Stats):
        raise ArgumentError(f"stats: expected a Stats, got {type(stats).__name__}")
    text = _Text(tokenizer, options)
    if chooser is None:
        vocab = session._runner.network.vocab
        chooser = make_chooser(options, tokenizer=tokenizer, eos_ids=eos_ids, vocab=vocab)
    return _steps(session, ids, whole, prefixes, options, chooser, text, set(eos_ids), stats)


def read_prompt(
    session: Session, ids: Sequence[int], stats: Stats, *, whole: bool, prefixes: Prefixes = None
) -> None:
    """Read a prompt without a reply; `whole` and `prefixes` are those of `steps_of`."""
    with session._guard.use():
        for unread in _reading(session, ids, whole, prefixes, stats):
            session._advance_all(unread)


def read_before(session: Session, ids: Sequence[int], *, anew: bool, drop_pending: bool) -> Session | None:
    """Read the first tokens of a turn, within its reply; return a copy of the state after them, if any.

    `anew`: the session forgets all it has read. `drop_pending`: the token sampled last is not part of it.
    """
    if drop_pending:
        session._leave(None)
    if not ids:
        return None
    if anew:
        session._keep([])
    session._advance_over([*session.pending, *ids])
    return session._forked()


async def in_thread(make: Callable[[], Reply]) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a reply that runs in a thread of its own.

    It ends, within one token or one chunk of a prompt, with the task that awaits it, and when the iterator is
    closed or forgotten.
    """
    import asyncio  # imported late: it takes as long as the rest of the package
    from concurrent.futures import ThreadPoolExecutor

    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1, "pyturbo-reply")
    leash = None
    try:
        reply = await loop.run_in_executor(pool, make)
        leash = _Leash(reply)
        while (chunk := await loop.run_in_executor(pool, next, reply, None)) is not None:
            yield chunk
    finally:
        try:
            if leash is not None:
                reply.cancel()
                await loop.run_in_executor(pool, reply.close)
        finally:
            pool.shutdown(wait=False)


class _Leash:
    """Cancels a reply when nothing can ask for its chunks any more, whatever happened to the event loop."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __del__(self) -> None:
        self._reply.cancel()


def _steps(
    session: Session,
    ids: Sequence[int],
    whole: bool,
    prefixes: Prefixes,
    options: Options,
    chooser: Chooser,
    text: _Text,
    eos: set[int],
    stats: Stats,
) -> Steps:
    """Read `ids`, then sample and read tokens until the reply ends. The last one stays pending."""
    runner = session._runner
    for unread in _reading(session, ids, whole, prefixes, stats):
        yield Unread(unread)
    chooser.read(session.tokens)
    used = runner.expert_use()
    stats.decode_experts = runner.expert_use(used)
    may_lead = can_lead(session, chooser, options.logprobs)
    while True:
        if not session._leads:  # else the token has been read
            session._guard.check()
        try:
            token, logprob = session._sample(chooser)
        except ArgumentError:  # NaN: weights that were changed meanwhile explain it
            runner.origin.check_files()
            raise
        if not session._leads:
            session._leave(token)
        full = session.position == session.context and bool(session.pending)
        stats.tokens += 1
        finish: FinishReason | None = "stop" if token in eos else None
        piece = ""
        if finish is None:
            chooser.accept(token)
            piece = text.add(token)
        if text.stop_string is not None or chooser.ended:
            finish = "stop"
        elif finish is None and (stats.tokens == options.max_tokens or full or _is_over(options)):
            finish = "length"
        top = tuple(session._likeliest(options.logprobs)) if options.logprobs else ()
        if finish is not None:
            runner.origin.check_files()  # weights that changed meanwhile make it an error
            piece += text.finish()
            finish = "stop" if text.stop_string is not None else finish
            if prefixes is not None:
                prefixes[0].keep(session)
        yield Chunk(piece, token, logprob, finish, top, text.stop_string)
        if finish is not None:
            return
        if session.pending != [token] and not session._leads:
            raise StateError("the session went on without this reply")
        begin = time.perf_counter()
        leads = may_lead and session.timings is None and stats.tokens + 1 < options.max_tokens
        yield Unread(np.array([token], np.int32), chooser if leads else None)
        stats.decode_seconds += time.perf_counter() - begin
        stats.decode_experts = runner.expert_use(used)


def _is_over(options: Options) -> bool:
    """Return whether the time of a reply is over."""
    return options.ends is not None and time.monotonic() >= options.ends


def _reading(
    session: Session, ids: Sequence[int], whole: bool, prefixes: Prefixes, stats: Stats
) -> Generator[NDArray[np.int32], None, None]:
    """Yield what the session has not read of a prompt, for a caller that holds the session and reads it."""
    begin, runner = time.perf_counter(), session._runner
    runner.origin.check_files()
    session._begin_reply()
    stats.clear()
    used = runner.expert_use()
    store, before_reply = prefixes or (None, None)
    if whole or (store is not None and not session.position):
        ids = ids[session._keep(ids) if store is None else store.restore(session, ids) :]
        stats.cached_tokens, stats.prompt_tokens = session.position, len(session.pending)
    unread = [*session.pending, *ids]
    if unread:
        tokens = runner.check_ids(unread)
        yield from [tokens] if store is None else store.parts(session, tokens, before_reply)
    stats.prompt_tokens += len(ids)
    stats.prefill_seconds = time.perf_counter() - begin
    stats.prefill_experts = runner.expert_use(used)


class _Text:
    """The text of a reply as it becomes certain. Without a tokenizer there is none."""

    def __init__(self, tokenizer: Tokenizer | None, options: Options) -> None:
        """Look for stop strings after the first `min_tokens` tokens, but not in thoughts before an answer."""
        self._stops: StopStrings = options.stop_strings()
        self._left = options.min_tokens
        self._detokenizer, self._answer = None, Answer(None)
        if tokenizer is not None:
            dialect, chat = tokenizer.dialect, options.chat
            markers = () if chat is None else dialect.markers
            self._detokenizer = tokenizer.detokenizer(continues=True, markers=markers)
            if self._stops and chat is not None and dialect.may_think:
                self._answer = Answer(dialect.parser(prompt=chat))

    @property
    def stop_string(self) -> str | None:
        """The stop string at which it has ended; None while it has not."""
        return self._stops.found

    def add(self, token: int) -> str:
        if self._detokenizer is None:
            return ""
        before, piece = self._answer.divide(self._detokenizer.add(token))
        self._left -= 1
        return before + (piece if self._left >= 0 else self._stops.add(piece)[0])

    def finish(self) -> str:
        """Return the text that was held back, up to a stop string if it has one."""
        if self._detokenizer is None:
            return ""
        before, piece = self._answer.divide(self._detokenizer.finish())
        return before + self._stops.add(piece + self._answer.finish())[0] + self._stops.finish()
