"""Replies of a model to one request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import Receive

from pyturbo._arguments import index
from pyturbo.batching import Stream
from pyturbo.engine.generation import Chunk
from pyturbo.errors import ArgumentError, BusyError, ContextError, FormatError
from pyturbo.serve.preparation import Preparation
from pyturbo.serve.requests.asked import Asked, prompt_of
from pyturbo.serve.requests.messages import refusal
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects import Part, ToolCallEnd

Result = TypeVar("Result")

_LAST_TOKEN_SECONDS = 60.0  # how long a reply that is over waits for its last token, which has all text


@dataclass(frozen=True)
class Event:
    """What became known of a reply.

    Attributes:
        index: The number of the reply.
        chunk: Its next token; None at its end and where `progress` says how far its prompt is read.
        parts: The parts of its text that are certain now.
        finish: In the last event of a reply: "stop", "length" or "tool_calls".
        progress: How many tokens of its prompt were read, of how many.
    """

    index: int
    chunk: Chunk | None = None
    parts: tuple[Part, ...] = ()
    finish: str | None = None
    progress: tuple[int, int] | None = None


class Replies:
    """The replies to one request, side by side. Closing it cancels what is under way."""

    def __init__(self, streams: list[Stream], asked: Asked, settings: Settings, end: float) -> None:
        """`end`: the time limit. A reply ends with the first token after it. One that has no token yet ends
        `quiet_seconds` after it, and one that is stuck a minute after it.
        """
        self.streams, self._asked, self._settings, self._end = streams, asked, settings, end

    def close(self) -> None:
        for stream in self.streams:
            stream.cancel()

    async def events(self) -> AsyncIterator[Event]:
        """Yield what becomes known of all replies, in the order in which it does."""
        events = [self._events_of(i) for i in range(len(self.streams))]
        try:
            async for event in events[0] if len(events) == 1 else _merged(events):
                yield event
        except ContextError:  # a prompt for which there is no room
            raise
        except (ArgumentError, FormatError) as error:  # a request that is wrong is refused before
            raise RequestError("api_error", f"the reply failed: {error}") from error
        finally:
            self.close()

    async def _events_of(self, index: int) -> AsyncIterator[Event]:
        stream, calls = self.streams[index], False
        end = self._end + self._settings.quiet_seconds
        while True:
            left = end - time.monotonic()
            try:
                chunk = await stream.anext(max(0.0, min(left, self._settings.quiet_seconds)))
            except TimeoutError:
                if time.monotonic() < end:
                    yield Event(index, progress=stream.progress)
                    continue
                stream.cancel()
                yield Event(index, finish="length")  # without text that is held back: no token ended it
                return
            end = self._end + max(self._settings.quiet_seconds, _LAST_TOKEN_SECONDS)
            parts = stream.new_parts()
            calls = calls or any(isinstance(part, ToolCallEnd) and part.complete for part in parts)
            finish: str | None = "length" if chunk is None else chunk.finish_reason
            if self._asked.one_call and (parts_of_one := _first_call(parts)):  # not one that is cut off
                stream.cancel()
                parts, finish = parts_of_one, "stop"
            if finish == "stop" and calls:
                finish = "tool_calls"
            yield Event(index, chunk, tuple(parts), finish)
            if finish is not None:
                return


async def begin(
    preparation: Preparation, served: Served, ask: Callable[[], Asked], settings: Settings
) -> Replies:
    """Have a model reply. What is wrong with the request is an error here, before anything is sent.

    `ask` is called in another thread, because templates and grammars take time.
    """
    if served.full:
        raise BusyError("too many requests wait already")

    def submit() -> Replies:
        asked, end = ask(), time.monotonic() + settings.reply_seconds
        options = {**_within(asked.options, settings.max_reply), "ends": end}
        streams = served.engine.submit_several(
            prompt_of(served, asked),
            asked.count,
            tools=asked.tools,
            variables=asked.variables or None,
            **options,
        )
        return Replies(streams, asked, settings, end)

    return await preparation.run(served, submit)


def _within(options: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return options of a reply with at most `most` tokens, whatever the request says."""
    longest = index("max_tokens", options["max_tokens"], least=1)
    least = index("min_tokens", options.get("min_tokens", 0))
    if least > longest:
        raise refusal("min_tokens", f"expected at most max_tokens, {longest}, got {least}")
    return {**options, "max_tokens": min(longest, most), "min_tokens": min(least, most)}


async def unless_gone(receive: Receive, work: Awaitable[Result]) -> Result | None:
    """Do some work for a client. It is cancelled when the client goes away, and None is returned."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.wait({task, gone})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _first_call(parts: list[Part]) -> list[Part]:
    """Return the parts up to the end of a whole call; none if there is no such end."""
    for place, part in enumerate(parts):
        if isinstance(part, ToolCallEnd) and part.complete:
            return parts[: place + 1]
    return []


async def _merged(sources: list[AsyncIterator[Event]]) -> AsyncIterator[Event]:
    """Yield from all sources as they have something."""
    queue: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()

    async def forward(source: AsyncIterator[Event]) -> None:
        try:
            async for event in source:
                queue.put_nowait(event)
            queue.put_nowait(None)
        except BaseException as error:
            queue.put_nowait(error)
            raise

    tasks = [asyncio.ensure_future(forward(source)) for source in sources]
    try:
        for _ in tasks:
            while (event := await queue.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
