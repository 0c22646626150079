"""POST /v1/chat/completions, as OpenAI's clients speak it."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from pyturbo.engine.generation import Chunk
from pyturbo.serve import accounts
from pyturbo.serve.body import Fields, read_body
from pyturbo.serve.messages import checked_messages
from pyturbo.serve.replies import Asked, Event, Replies
from pyturbo.serve.request_error import RequestError
from pyturbo.serve.sampling_fields import IGNORED, SamplingFields
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.serve.sse import comment, event
from pyturbo.serve.thinking import with_effort
from pyturbo.serve.tool_choice import constrained
from pyturbo.text.dialects import Message, Part, Reasoning, Text, ToolCallArguments, ToolCallBegin

_SCHEMA_OF_AN_OBJECT = {"type": "object"}


class JsonSchema(Fields):
    """A schema that the reply fits."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Fields):
    """What a reply must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema_of_reply(self) -> Mapping[str, Any] | None:
        """Return the schema that the reply fits, if it has to fit one."""
        if self.type == "json_schema":
            if self.json_schema is None:
                raise RequestError("invalid_request_error", "response_format.json_schema: expected a schema")
            return self.json_schema.schema_
        return _SCHEMA_OF_AN_OBJECT if self.type == "json_object" else None


class ChatFields(SamplingFields):
    """The fields of a request."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None  # variables of the template

    def asked(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        options = self.options(state.settings)
        if self.max_completion_tokens is not None:
            options["max_tokens"] = self.max_completion_tokens
        if self.top_logprobs and not self.logprobs:
            raise RequestError("invalid_request_error", "top_logprobs: expected logprobs with it")
        options["logprobs"] = self.top_logprobs or 0
        schema = None if self.response_format is None else self.response_format.schema_of_reply()
        budget, variables = with_effort(served.model, self.reasoning_effort)
        asked = Asked(
            checked_messages(self.messages),
            budget | options,
            self.count(state.settings),
            self.tools or None,
            variables | (self.chat_template_kwargs or {}),
            one_call=self.parallel_tool_calls is False,
        )
        return constrained(served.model, asked, self.tool_choice, schema)


async def chat_completions(request: Request) -> ASGIApp:
    """Reply to messages."""
    state = state_of(request)
    fields = await read_body(request, ChatFields, state.settings, *IGNORED)
    return await state.reply(request, fields.model, fields.asked, _Writer(fields), stream=bool(fields.stream))


class _Writer:
    """Writes replies as the API has them."""

    def __init__(self, fields: ChatFields) -> None:
        self._fields = fields
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for all replies, and return them."""
        chunks: list[list[Chunk]] = [[] for _ in replies.streams]
        finish: list[str | None] = [None for _ in replies.streams]
        parts: list[list[Part]] = [[] for _ in replies.streams]
        async for found in replies.events():
            if found.chunk is not None:
                chunks[found.index].append(found.chunk)
            parts[found.index] += found.parts
            finish[found.index] = found.finish
        choices = [
            {
                "index": i,
                "message": {"refusal": None, **Message.of(parts[i]).to_dict()},
                "logprobs": self._logprobs(served, chunks[i]),
                "finish_reason": finish[i],
            }
            for i in range(len(replies.streams))
        ]
        return JSONResponse(
            self._object(served, "chat.completion", choices)
            | {"usage": accounts.usage(replies.streams), "timings": accounts.timings(replies.streams[0])}
        )

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        return event(error.openai())

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as replies go on."""
        for i in range(len(replies.streams)):
            yield self._event(served, self._choice(i, {"role": "assistant", "content": ""}))
        async for found in replies.events():
            if found.progress is not None:
                yield comment("prompt {}/{}".format(*found.progress))
            else:
                for piece in self._pieces_of(served, replies, found):
                    yield piece
        if self._fields.includes_usage:
            usage = {"usage": accounts.usage(replies.streams)}
            yield event(self._object(served, "chat.completion.chunk", []) | usage)
        yield event("[DONE]")

    def _pieces_of(self, served: Served, replies: Replies, found: Event) -> list[bytes]:
        """Return the events of one token."""
        deltas = [delta for delta in map(_delta, found.parts) if delta]
        logprobs = self._logprobs(served, [] if found.chunk is None else [found.chunk])
        if logprobs is not None and logprobs["content"] and not deltas:
            deltas = [{}]
        choices = [self._choice(found.index, delta) for delta in deltas]
        if choices:
            choices[0]["logprobs"] = logprobs
        pieces = [self._event(served, choice) for choice in choices]
        if found.finish is not None:
            timings = {"timings": accounts.timings(replies.streams[found.index])}
            pieces.append(self._event(served, self._choice(found.index, {}, found.finish), timings))
        return pieces

    def _choice(self, index: int, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

    def _event(
        self, served: Served, choice: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> bytes:
        usage = {"usage": None} if self._fields.includes_usage else {}
        return event(self._object(served, "chat.completion.chunk", [choice]) | usage | dict(more or {}))

    def _object(self, served: Served, kind: str, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": served.name,
            "system_fingerprint": served.fingerprint,
            "choices": choices,
        }

    def _logprobs(self, served: Served, chunks: Sequence[Chunk]) -> dict[str, Any] | None:
        if not self._fields.logprobs:
            return None
        return accounts.chat_logprobs(served.model.tokenizer, chunks)


def _delta(part: Part) -> dict[str, Any]:
    """Return what a part adds to the message."""
    if isinstance(part, Text):
        return {"content": part.text}
    if isinstance(part, Reasoning):
        return {"reasoning_content": part.text}
    if isinstance(part, ToolCallBegin):
        function = {"name": part.name, "arguments": ""}
        return {
            "tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]
        }
    if isinstance(part, ToolCallArguments):
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.fragment}}]}
    return {}
