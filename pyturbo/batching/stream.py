"""A reply on its way from the thread of an engine to whoever asked for it."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pyturbo._fork import OwnProcess
from pyturbo.engine.generation import Chunk, Completion, Stats
from pyturbo.errors import StateError
from pyturbo.text.dialects import Message, Part, ReplyParser, ReplyText

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class Mailbox:
    """Chunks that nobody has taken yet. The engine puts them in and ends it; any thread takes them out.

    Attributes:
        cancelled: Whether nobody wants any more.
        ended: Whether nothing more will be put in.
        stats: Counts and times of the reply.
        queued_seconds: How long the reply waited before its prompt was read; None: it still waits.
        read: Tokens of the prompt that were read so far, or were known already.
        prompt: Tokens of the prompt.
    """

    def __init__(self, prompt: int = 0) -> None:
        self.read, self.prompt = 0, prompt
        self.cancelled = self.ended = False
        self.stats, self.queued_seconds = Stats(), None  # type: Stats, float | None
        self._submitted = time.perf_counter()
        self._chunks: deque[Chunk] = deque()
        self._error: BaseException | None = None
        self._own = OwnProcess()
        self._changed = threading.Condition()
        self._waiters: list[Callable[[], None]] = []  # called once at the next change

    def begin(self) -> None:
        """Note that it waits no longer."""
        self.queued_seconds = time.perf_counter() - self._submitted

    def put(self, chunk: Chunk) -> None:
        """Add a chunk."""
        with self._changed:
            self._chunks.append(chunk)
            self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Say that there are no more chunks, or why there are none. The first call counts."""
        with self._changed:
            if not self.ended:
                self.ended, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def take(self, timeout: float | None = None) -> Chunk | None:
        """Wait for a chunk, and take it. None after the last one; an error of the reply is raised there."""
        self._own.require("the stream")
        with self._changed:
            if not self._changed.wait_for(lambda: self._chunks or self.ended, timeout):
                raise TimeoutError("no chunk within the time allowed")
            return self._taken()

    def take_or_wait(self, wake: Callable[[], None]) -> tuple[bool, Chunk | None]:
        """Take a chunk as `take` does -> True, chunk; or have `wake` called at the next change -> False."""
        self._own.require("the stream")
        with self._changed:
            if self._chunks or self.ended:
                return True, self._taken()
            self._waiters.append(wake)
            return False, None

    def _taken(self) -> Chunk | None:
        if self._chunks:
            return self._chunks.popleft()
        if self._error is not None:
            raise _own(self._error) from self._error
        return None


class Stream:
    """The chunks of one reply of an `Engine`, each as soon as it is known; `Engine.submit` returns it.

    Iterate over it, with `for` or with `async for`, or ask for the `result`. One that nobody holds any more
    is cancelled, and so is one whose task is cancelled while it waits.

    Examples:
        >>> with pyturbo.Engine(pyturbo.load()) as engine:
        ...     [chunk.text for chunk in engine.submit("Once upon a time", max_tokens=3)]
        [',', ' there', ' was']
    """

    def __init__(self, mailbox: Mailbox, parser: ReplyParser, engine: object) -> None:
        """Take what the engine fills, what takes the text apart, and the engine, which lives as long."""
        self._mailbox, self._text, self._engine = mailbox, ReplyText(parser), engine

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "ended" if self._mailbox.ended else "under way"
        return f"Stream({state}, {self.stats.tokens} tokens)"

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._mailbox.stats

    @property
    def queued_seconds(self) -> float | None:
        """How long it waited for its turn; None: it still waits."""
        return self._mailbox.queued_seconds

    @property
    def progress(self) -> tuple[int, int]:
        """How many tokens of the prompt were read, or known already, and how many it has."""
        return min(self._mailbox.read, self._mailbox.prompt), self._mailbox.prompt

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called before its end."""
        return self._mailbox.cancelled

    @property
    def ended(self) -> bool:
        """Whether nothing more will come; the last chunks may still have to be taken."""
        return self._mailbox.ended

    def cancel(self) -> None:
        """End the reply, from any thread, within one token or one piece of its prompt."""
        if not self._mailbox.ended:
            self._mailbox.cancelled = True

    def __del__(self) -> None:
        self.cancel()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Chunk:
        chunk = self._noted(self._mailbox.take())
        if chunk is None:
            raise StopIteration
        return chunk

    def next(self, timeout: float) -> Chunk | None:
        """Return the next chunk, None after the last; TimeoutError if there is none in `timeout` seconds."""
        return self._noted(self._mailbox.take(timeout))

    def _noted(self, chunk: Chunk | None) -> Chunk | None:
        """Return a chunk, after its text was added to that of the reply."""
        if chunk is not None:
            self._text.add(chunk.text)
        if chunk is None or chunk.finish_reason is not None:
            self._text.end()
        return chunk

    def new_parts(self) -> list[Part]:
        """Return the parts that are certain by the chunks taken so far, and that nobody has taken yet."""
        return [*self._text.parts()]

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the reply instead of chunks: thoughts, text and tool calls."""
        yield from self._text.parts()
        for _ in self:
            yield from self._text.parts()
        yield from self._text.parts()

    async def aparts(self) -> AsyncIterator[Part]:
        """Yield the parts of the reply, for `async for`."""
        async for _ in self:
            for part in self._text.parts():
                yield part
        for part in self._text.parts():
            yield part

    @property
    def message(self) -> Message:
        """The chunks that were taken so far: their text, thoughts and tool calls."""
        return self._text.message

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.anext()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def anext(self, timeout: float | None = None) -> Chunk | None:
        """Return the next chunk, None after the last; TimeoutError if there is none in `timeout` seconds."""
        import asyncio  # imported late: it takes as long as the rest of the package

        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while True:
            waiting: Future[None] = loop.create_future()
            there, chunk = self._mailbox.take_or_wait(partial(_wake, loop, waiting))
            if there:
                return self._noted(chunk)
            if end is not None and loop.time() >= end:
                raise TimeoutError("no chunk within the time allowed")
            timer = None if end is None else loop.call_at(end, _resume, waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                if timer is not None:
                    timer.cancel()

    def result(self) -> Completion:
        """Wait for the rest of the reply, and return it whole; "cancelled" if it was cancelled."""
        completion = Completion(stats=self.stats)
        for chunk in self:
            completion.add(chunk)
        if self.cancelled and completion.finish_reason is None:
            completion.finish_reason = "cancelled"
        completion.message = self.message
        return completion

    def __copy__(self) -> NoReturn:
        raise StateError("a stream cannot be copied: submit the prompt again")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()


def _own(error: BaseException) -> BaseException:
    """Return a copy: several threads may raise what ended several replies, and each adds to its traceback."""
    try:
        return copy.copy(error)
    except Exception:  # of classes that need more than their text
        return error


def _wake(loop: AbstractEventLoop, waiting: Future[None]) -> None:
    """Wake a coroutine from any thread, unless its loop is gone."""

    with suppress(RuntimeError):  # a closed loop
        loop.call_soon_threadsafe(_resume, waiting)


def _resume(waiting: Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
