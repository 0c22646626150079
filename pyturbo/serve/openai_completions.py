"""POST /v1/completions: text that goes on, as OpenAI's clients speak it."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from pyturbo.engine.generation import Chunk
from pyturbo.serve import accounts
from pyturbo.serve.accounts import Places
from pyturbo.serve.body import read_body
from pyturbo.serve.messages import refusal
from pyturbo.serve.replies import Asked, Replies
from pyturbo.serve.request_error import RequestError
from pyturbo.serve.sampling_fields import IGNORED, SamplingFields
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.serve.sse import comment, event


class CompletionFields(SamplingFields):
    """The fields of a request."""

    prompt: str | list[int] | list[str]
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)

    def asked(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        if self.echo and self.logprobs is not None:
            raise refusal("echo", "expected none beside logprobs, which prompts do not have")
        options = self.options(state.settings) | {"logprobs": self.logprobs or 0}
        return Asked(self._prompt(), options, self.count(state.settings))

    def _prompt(self) -> str | list[int]:
        prompt: Any = self.prompt
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
            if len(prompt) > 1:
                raise refusal("prompt", "expected one text, got several; send a request for each")
            return str(prompt[0])
        return prompt  # type: ignore[no-any-return]

    def echoed(self, served: Served) -> str:
        """Return the text that stands before replies."""
        if not self.echo:
            return ""
        prompt = self._prompt()
        return prompt if isinstance(prompt, str) else served.model.tokenizer.decode(prompt)


async def completions(request: Request) -> ASGIApp:
    """Continue a text."""
    state = state_of(request)
    fields = await read_body(request, CompletionFields, state.settings, *IGNORED)
    return await state.reply(request, fields.model, fields.asked, _Writer(fields), stream=bool(fields.stream))


class _Writer:
    """Writes replies as the API has them."""

    def __init__(self, fields: CompletionFields) -> None:
        self._fields = fields
        self._id, self._created = f"cmpl-{uuid.uuid4().hex}", int(time.time())

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for all replies, and return them."""
        chunks: list[list[Chunk]] = [[] for _ in replies.streams]
        finish: list[str | None] = [None for _ in replies.streams]
        async for found in replies.events():
            if found.chunk is not None:
                chunks[found.index].append(found.chunk)
            finish[found.index] = found.finish
        echoed = self._fields.echoed(served)
        choices = [
            self._choice(
                served,
                i,
                echoed + "".join(chunk.text for chunk in chunks[i]),
                Places(),
                chunks[i],
                finish[i],
            )
            for i in range(len(replies.streams))
        ]
        return JSONResponse(
            self._object(served, choices)
            | {"usage": accounts.usage(replies.streams), "timings": accounts.timings(replies.streams[0])}
        )

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as replies go on."""
        usage = {"usage": None} if self._fields.includes_usage else {}
        echoed = self._fields.echoed(served)
        places = [Places() for _ in replies.streams]
        if echoed:
            for i in range(len(replies.streams)):
                yield event(self._object(served, [self._choice(served, i, echoed, places[i])]) | usage)
        async for found in replies.events():
            if found.progress is not None:
                yield comment("prompt {}/{}".format(*found.progress))
                continue
            chunks = [] if found.chunk is None else [found.chunk]
            text = "".join(chunk.text for chunk in chunks)
            if text or found.finish is not None or self._fields.logprobs is not None:
                choice = self._choice(served, found.index, text, places[found.index], chunks, found.finish)
                stream = replies.streams[found.index]
                timings = {} if found.finish is None else {"timings": accounts.timings(stream)}
                yield event(self._object(served, [choice]) | usage | timings)
        if self._fields.includes_usage:
            yield event(self._object(served, []) | {"usage": accounts.usage(replies.streams)})
        yield event("[DONE]")

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        return event(error.openai())

    def _choice(
        self,
        served: Served,
        index: int,
        text: str,
        places: Places,
        chunks: Sequence[Chunk] = (),
        finish: str | None = None,
    ) -> dict[str, Any]:
        wanted = self._fields.logprobs is not None and chunks
        logprobs = accounts.text_logprobs(served.model.tokenizer, chunks, places) if wanted else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _object(self, served: Served, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": served.name,
            "system_fingerprint": served.fingerprint,
            "choices": choices,
        }
