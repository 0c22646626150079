"""One reply of a model: its chunks, from any thread, and as an asynchronous iterator."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from pyturbo._guard import Claim
from pyturbo._sampling import Sampler, top_logprobs
from pyturbo.errors import ArgumentError, CancelledError, StateError
from pyturbo.generation import Chunk, FinishReason, Options, Stats
from pyturbo.text import StopStrings

if TYPE_CHECKING:
    from pyturbo.model import Model
    from pyturbo.session import Session


class Reply(Iterator[Chunk]):
    """The chunks of one reply, each as soon as it is known. `Model.stream` returns it.

    From its first chunk to its end the session belongs to it: another thread that uses the session gets a
    StateError; in the thread of the reply a new one takes over, and this one cannot go on.

    Attributes:
        session: What it reads with.
        stats: What it has cost so far.
        cancelled: Whether it ended by `cancel`.
    """

    def __init__(self, session: Session, chunks: Generator[Chunk, None, None], stats: Stats) -> None:
        self.session, self.stats, self.cancelled = session, stats, False
        self._chunks, self._claim, self._ended = chunks, Claim(), False

    def __repr__(self) -> str:
        state = ", cancelled" if self.cancelled else ""
        return f"Reply({self.stats.tokens} tokens{state}, {self.session!r})"

    def __next__(self) -> Chunk:
        if self._ended:
            raise StopIteration
        chunk = None
        with self.session.guard.use(self._claim):
            try:
                chunk = next(self._chunks, None)
            except CancelledError:
                self.cancelled = True
            finally:
                if chunk is None or chunk.finish_reason is not None:
                    self._end()
        if chunk is None:
            raise StopIteration
        return chunk

    def cancel(self) -> None:
        """Ends the reply, from any thread: no chunk follows the token, or the part of a prompt, read now."""
        self._claim.cancelled = True

    def close(self) -> None:
        """Ends the reply in the thread that runs it. The session can go on from there."""
        try:
            self._chunks.close()
        except ValueError:  # the generator is running
            raise StateError("close: the reply runs in another thread; cancel() ends it from here") from None
        self._end()

    def _end(self) -> None:
        self._ended = True
        self.session.guard.release(self._claim)


def start(
    model: Model, session: Session, ids: Sequence[int], options: Options, stats: Stats, *, whole: bool
) -> Reply:
    """The reply to `ids`. What is wrong with them or with the options is an error here, not later.

    `whole`: they are all there is, not what comes next. The session keeps what it has read of them.
    """
    room = session.context - (0 if whole else session.position + len(session.pending))
    if len(ids) > room:
        rest = "a context" if whole else "the rest of a context"
        raise ArgumentError(
            f"prompt: expected at most {max(room, 0)} tokens, {rest} of {session.context}, got {len(ids)}"
        )
    text = _Text(model, options.stop_strings())
    chunks = _chunks(session, ids, whole, options, options.sampler(), text, set(model.eos_ids), stats)
    return Reply(session, chunks, stats)


async def in_thread(make: Callable[[], Reply]) -> AsyncGenerator[Chunk, None]:
    """The chunks of a reply that runs in a thread of its own. Leaving the loop, or cancelling the task, ends
    it within one token, or one chunk of a prompt."""
    import asyncio  # only where it is in use: it takes as long to import as the rest of the package
    from concurrent.futures import ThreadPoolExecutor

    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1, "pyturbo-reply")
    reply: Reply | None = None
    try:
        reply = await loop.run_in_executor(pool, make)
        while (chunk := await loop.run_in_executor(pool, next, reply, None)) is not None:
            yield chunk
    finally:
        if reply is not None:
            reply.cancel()
            await loop.run_in_executor(pool, reply.close)
        pool.shutdown(wait=False)


def _chunks(
    session: Session,
    ids: Sequence[int],
    whole: bool,
    options: Options,
    sampler: Sampler,
    text: _Text,
    eos: set[int],
    stats: Stats,
) -> Generator[Chunk, None, None]:
    """Reads `ids`, then samples and reads tokens until the reply ends. The last one stays pending."""
    begin = time.perf_counter()
    kept = session.keep(ids) if whole else 0
    ids = ids[kept:]
    unread = [*session.pending, *ids]
    logits = session.advance_to_logits(unread) if unread else session.logits
    sampler.accept(session.tokens)
    stats.prompt_tokens, stats.cached_tokens = len(ids), kept
    stats.prefill_seconds = time.perf_counter() - begin
    stats.tokens, stats.decode_seconds = 0, 0.0
    while True:
        session.guard.check()
        token, logprob = sampler.sample(logits)
        sampler.accept(token)
        session.leave(token)
        stats.tokens += 1
        finish: FinishReason | None = "stop" if token in eos else None
        piece = "" if finish else text.add(token)
        if text.stopped:
            finish = "stop"
        elif finish is None and (stats.tokens == options.max_tokens or session.position == session.context):
            finish = "length"
        if finish is not None:
            piece += text.finish()
            finish = "stop" if text.stopped else finish
        top = tuple(top_logprobs(logits, options.logprobs)) if options.logprobs else ()
        yield Chunk(piece, token, logprob, finish, top)
        if finish is not None:
            return
        if session.pending != [token]:
            raise StateError("the session went on without this reply")
        begin = time.perf_counter()
        logits = session.advance_to_logits([token])
        stats.decode_seconds += time.perf_counter() - begin


class _Text:
    """The text of a reply as it becomes certain. A model without a tokenizer has none."""

    def __init__(self, model: Model, stops: StopStrings) -> None:
        self._stops = stops
        has_text = model.has_tokenizer or bool(stops)
        self._detokenizer = model.tokenizer.detokenizer(continues=True) if has_text else None

    @property
    def stopped(self) -> bool:
        """Whether it has ended at a stop string."""
        return self._stops.stopped

    def add(self, token: int) -> str:
        return "" if self._detokenizer is None else self._stops.add(self._detokenizer.add(token))[0]

    def finish(self) -> str:
        """What was held back, up to a stop string if there is one in it."""
        if self._detokenizer is None:
            return ""
        return self._stops.add(self._detokenizer.finish())[0] + self._stops.finish()
