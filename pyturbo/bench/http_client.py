"""Clients of a server of completions that take the time of every token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

RETRY_SECONDS = 0.1  # before a client that was refused asks again


@dataclass
class Reply:
    """The times of a streamed reply, or of a refusal.

    Attributes:
        status: That of HTTP.
        began: When it was asked for.
        times: When each piece of text arrived; of a refusal, when that did.
    """

    status: int
    began: float
    times: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        """Seconds to the first piece, or to the refusal."""
        return self.times[0] - self.began

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces."""
        return [later - earlier for earlier, later in pairwise(self.times)]


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


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all are not above; 0.5 is the median.

    Examples:
        >>> from pyturbo.bench.http_client import percentile
        >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([3.0, 1.0, 2.0], 0.99)
        (2.0, 3.0)
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def load(port: int, bodies: Sequence[Mapping[str, Any]], *, clients: int, insist: bool = False) -> Load:
    """Have clients ask for completions until all bodies were answered.

    With `insist` a client that was refused asks again soon, until the last reply has ended.
    """
    return asyncio.run(_load(port, bodies, clients, insist))


async def _load(port: int, bodies: Sequence[Mapping[str, Any]], clients: int, insist: bool) -> Load:
    left, replies, refusals = [*bodies], [], []  # type: list[Mapping[str, Any]], list[Reply], list[Reply]

    async def client() -> None:
        while left:
            body = left.pop()
            reply = await _asked(port, body)
            if reply.status == 200:
                replies.append(reply)
                continue
            refusals.append(reply)
            if insist:
                left.append(body)
                await asyncio.sleep(RETRY_SECONDS)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
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
        if reply.status != 200:
            reply.times = [time.perf_counter()]
        return reply
    finally:
        writer.close()
