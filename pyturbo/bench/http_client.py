"""Clients of a server of completions that take the time of every token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass
class Reply:
    """The times of a streamed reply, or of a refusal.

    Attributes:
        status: That of HTTP.
        began: When it was asked for.
        times: When each piece of text arrived; of a refusal, when that did.
        retry_seconds: After which time a client that was refused should ask again.
    """

    status: int
    began: float
    times: list[float] = field(default_factory=list)
    retry_seconds: float = 0.0

    @property
    def first(self) -> float:
        """Seconds to the first piece, or to the refusal."""
        return self.times[0] - self.began

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces."""
        return [later - earlier for earlier, later in pairwise(self.times)]

    @property
    def per_token(self) -> float:
        """Seconds from the request to the last piece, for each piece: waiting counts."""
        return (self.times[-1] - self.began) / len(self.times)


@dataclass
class Load:
    """What several clients at once were given.

    Attributes:
        seconds: From the first request to the last piece.
    """

    replies: list[Reply]
    refusals: list[Reply]
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together; a piece has the text of one token."""
        return sum(len(reply.times) for reply in self.replies) / self.seconds

    def first(self, share: float) -> float:
        """Return a percentile of the time to the first token."""
        return percentile([reply.first for reply in self.replies], share)

    def between(self, share: float) -> float:
        """Return a percentile of the time between two tokens."""
        return percentile([gap for reply in self.replies for gap in reply.gaps], share)

    def per_token(self, share: float) -> float:
        """Return a percentile of the time of a whole reply for each of its tokens, over all clients."""
        return percentile([reply.per_token for reply in self.replies], share)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all are not above; 0.5 is the median.

    Examples:
        >>> from pyturbo.bench.http_client import percentile
        >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([3.0, 1.0, 2.0], 0.99)
        (2.0, 3.0)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def load(port: int, bodies: Sequence[Mapping[str, Any]], *, clients: int) -> Load:
    """Have clients ask for completions until all bodies were answered."""
    return asyncio.run(_load(port, bodies, clients))


async def _load(port: int, bodies: Sequence[Mapping[str, Any]], clients: int) -> Load:
    left, replies = [*bodies], []  # type: list[Mapping[str, Any]], list[Reply]

    async def client() -> None:
        while left:
            replies.append(await _asked(port, left.pop()))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return _told_apart(replies, began)


def overload(port: int, bodies: Sequence[Mapping[str, Any]], *, replies: int, spread: float) -> Load:
    """Have a client for each body ask for completions, again and again, until `replies` were answered.

    The clients begin at even distances within `spread` seconds. One that is refused asks again when the
    server said that it should.
    """
    return asyncio.run(_overload(port, bodies, replies, spread))


async def _overload(port: int, bodies: Sequence[Mapping[str, Any]], enough: int, spread: float) -> Load:
    found: list[Reply] = []
    answered = asyncio.Semaphore(0)

    async def enough_answers() -> None:
        for _ in range(enough):
            await answered.acquire()

    async def client(place: int, body: Mapping[str, Any]) -> None:
        await asyncio.sleep(spread * place / len(bodies))
        while True:
            found.append(reply := await _asked(port, body))
            if reply.status == 200:
                answered.release()
            await asyncio.sleep(reply.retry_seconds)

    began = time.perf_counter()
    tasks = [asyncio.ensure_future(client(place, body)) for place, body in enumerate(bodies)]
    tasks.append(asyncio.ensure_future(enough_answers()))
    first, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in first:
        task.result()  # raises what ended a client
    return _told_apart(found, began)


def _told_apart(found: Sequence[Reply], began: float) -> Load:
    replies = [reply for reply in found if reply.status == 200]
    refusals = [reply for reply in found if reply.status != 200]
    return Load(replies, refusals, max(reply.times[-1] for reply in replies) - began)


async def _asked(port: int, body: Mapping[str, Any]) -> Reply:
    """Ask for a streamed completion."""
    data = json.dumps({**body, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(head.encode() + data)
        reply = Reply(int((await reader.readline()).split()[1]), began)
        async for line in reader:
            if line.startswith(b"data: ") and b'"text"' in line:
                reply.times.append(time.perf_counter())
            elif line.lower().startswith(b"retry-after:"):
                reply.retry_seconds = float(line.partition(b":")[2])
        if reply.status != 200:
            reply.times = [time.perf_counter()]
        return reply
    finally:
        writer.close()
