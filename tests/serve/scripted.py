"""A server that says what a test tells it to, when a test tells it to: the protocol without a model."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pyturbo.serve.page import routes

METRICS = """\
# HELP pyturbo_running Conversations under way.
# TYPE pyturbo_running gauge
pyturbo_running{model="tiny"} 1.0
pyturbo_running{model="other"} 2.0
pyturbo_waiting{model="tiny"} 0.0
pyturbo_state_bytes{model="tiny"} 1.5e+06
pyturbo_first_token_seconds_bucket{le="0.1",model="tiny"} 3.0
pyturbo_first_token_seconds_sum{model="tiny"} 1.0
pyturbo_first_token_seconds_count{model="tiny"} 4.0
pyturbo_something_new_total 7.0
pyturbo_requests_created{path="/"} 1.7e+09
python_info{version="3"} 1.0
"""


@dataclass
class Reply:
    """What one request gets.

    Attributes:
        pieces: Deltas of the content, one chunk each; a piece that is a number is a pause in seconds.
        thoughts: Deltas of the thoughts before them.
        progress: Comments about the prompt before those, as pairs of tokens that were read and all tokens.
        chances: The tokens of each piece as `(text, probability, alternatives)`, in place of the pieces.
        timings: The object that the last chunk has, if any.
        error: An error event after the pieces, in place of the end of the reply.
        ends: Whether the reply has an end; without one the connection is closed after the pieces.
        status: With another status than 200 the request fails, with `headers`.
    """

    pieces: Iterable[str | float] = ()
    thoughts: Iterable[str] = ()
    progress: Iterable[tuple[int, int]] = ()
    chances: Iterable[tuple[str, float, dict[str, float]]] = ()
    timings: dict[str, float] | None = None
    error: str | None = None
    ends: bool = True
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Script:
    """The server's side of a test.

    Attributes:
        replies: What the next requests get; without any, "Well." is the reply.
        requests: The bodies of all requests so far, and their headers under "headers".
        gone: Set when a client went away before the end of its reply.
        key: The API key that requests must have, if any.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        self.replies: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []
        self.gone = threading.Event()
        self.key: str | None = None
        self.metrics_asked = 0

    def refuses(self, request: Request) -> bool:
        return self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}"

    async def models(self, request: Request) -> Response:
        if self.refuses(request):
            return _error(401, "expected an API key", {})
        return JSONResponse({"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})

    async def metrics(self, request: Request) -> Response:
        self.metrics_asked += 1
        return PlainTextResponse(METRICS)

    async def chat(self, request: Request) -> Response:
        if self.refuses(request):
            return _error(401, "expected an API key", {})
        self.requests.append({**await request.json(), "headers": dict(request.headers)})
        reply = self.replies.popleft() if self.replies else Reply(["Well."])
        if reply.status != 200:
            return _error(reply.status, f"the status is {reply.status}", reply.headers)
        return StreamingResponse(self.watched(reply), media_type="text/event-stream")

    async def watched(self, reply: Reply) -> AsyncIterator[str]:
        try:
            async for piece in stream(reply):
                yield piece
        except (asyncio.CancelledError, GeneratorExit):
            self.gone.set()
            raise

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                *routes(),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/metrics", self.metrics),
            ]
        )


async def stream(reply: Reply) -> AsyncIterator[str]:
    """Yield the events of a reply."""
    yield _chunk({"role": "assistant", "content": ""})
    for read, all_tokens in reply.progress:
        yield f": prompt {read}/{all_tokens}\n\n"
        await asyncio.sleep(0.4)
    for text in reply.thoughts:
        yield _chunk({"reasoning_content": text})
        await asyncio.sleep(0.01)
    for text, chance, others in reply.chances:
        yield _chunk({"content": text}, logprobs={"content": [_token(text, chance, others)]})
    tokens = 0
    for piece in reply.pieces:
        if isinstance(piece, str):
            tokens += 1
            yield _chunk({"content": piece})
        await asyncio.sleep(0 if isinstance(piece, str) else piece)
    if reply.error is not None:
        yield f"data: {json.dumps({'error': {'message': reply.error, 'type': 'server_error'}})}\n\n"
        return
    if reply.ends:
        extra = {} if reply.timings is None else {"timings": reply.timings}
        yield _chunk({}, finish="stop", **extra)
        read = reply.timings or {"prompt_tokens": 11, "cached_tokens": 0}
        prompt = read["prompt_tokens"] + read["cached_tokens"]
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"


def _chunk(delta: dict[str, str], finish: str | None = None, logprobs: Any = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice], **more})}\n\n"


def _token(text: str, chance: float, others: dict[str, float]) -> dict[str, Any]:
    top = [{"token": other, "logprob": math.log(value)} for other, value in others.items()]
    return {"token": text, "logprob": math.log(chance), "top_logprobs": top}


def _error(status: int, message: str, headers: dict[str, str]) -> Response:
    return JSONResponse({"error": {"message": message, "type": "error"}}, status, headers)
