"""POST /v1/messages and POST /v1/messages/count_tokens, as Anthropic's clients speak them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from pyturbo._messages import shown
from pyturbo.model import Model
from pyturbo.serve.accounts import prompt_tokens
from pyturbo.serve.anthropic_history import messages_of, tools_of
from pyturbo.serve.blocks import Block, Blocks, Change
from pyturbo.serve.body import Fields, read_body
from pyturbo.serve.messages import refusal
from pyturbo.serve.replies import Asked, Replies, prompt_ids
from pyturbo.serve.request_error import RequestError
from pyturbo.serve.sampling_fields import few_stops
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.serve.sse import event
from pyturbo.serve.thinking import Thinking, with_budget, with_effort
from pyturbo.serve.tool_choice import constrained
from pyturbo.text.dialects.grammar import Choice
from pyturbo.text.dialects.message import json_object

#: Fields that change no reply here. What a cache can know of a prompt is found without being told.
_IGNORED = ("metadata", "service_tier", "cache_control")
#: Clients want thoughts to be signed, and send the signature back. It is not looked at.
_SIGNATURE = "unsigned"


class ThinkingFields(Fields):
    """Whether a reply begins with thoughts: with "adaptive" the template decides."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=1)
    display: Literal["summarized"] | None = None

    def found(self, model: Model) -> Thinking:
        """Return the options of a reply and the variables of its chat template."""
        if self.type != "enabled" and self.budget_tokens is not None:
            raise refusal("thinking.budget_tokens", f"expected none with type {self.type}")
        if self.type == "adaptive":
            return {}, {}
        return with_budget(model, self.budget_tokens if self.type == "enabled" else 0)


class ToolChoice(Fields):
    """Which tool a reply calls."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def choice(self, tools: list[dict[str, Any]] | None) -> Choice:
        """Return the choice as OpenAI's interface has it."""
        if self.type == "tool":
            names = [tool["function"]["name"] for tool in tools or ()]
            if self.name not in names:
                expected = f"expected one of {', '.join(names)}" if names else "expected tools with it"
                raise refusal("tool_choice.name", f"{expected}, got {shown(self.name)}")
            return {"type": "function", "function": {"name": self.name}}
        return "required" if self.type == "any" else self.type


class JsonFormat(Fields):
    """A schema that the reply fits."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """What a reply must be, and how much thought it takes."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class PromptFields(Fields):
    """The fields of a request that make its prompt."""

    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingFields | None = None
    output_config: OutputConfig | None = None

    def asked(self, served: Served, options: Mapping[str, Any]) -> Asked:
        """Return what the request asks of a model."""
        tools, choice = tools_of(self.tools), self.tool_choice
        config = OutputConfig() if self.output_config is None else self.output_config
        budget, switch = ({}, {}) if self.thinking is None else self.thinking.found(served.model)
        _, effort = with_effort(served.model, config.effort)
        asked = Asked(
            messages_of(self.system, self.messages),
            budget | dict(options),
            tools=tools,
            variables=switch | effort,
            one_call=bool(choice and choice.disable_parallel_tool_use),
        )
        schema = None if config.format is None else config.format.schema_
        return constrained(served.model, asked, None if choice is None else choice.choice(tools), schema)


class MessageFields(PromptFields):
    """The fields of a request for a reply."""

    max_tokens: int = Field(ge=1)
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None

    @field_validator("stop_sequences")
    @classmethod
    def _few_stops(cls, stop: list[str] | None) -> str | list[str] | None:
        return few_stops(stop)

    def reply(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return self.asked(served, options | {"max_tokens": self.max_tokens})


async def messages(request: Request) -> ASGIApp:
    """Reply to messages."""
    state = state_of(request)
    fields = await read_body(request, MessageFields, state.settings, *_IGNORED)
    return await state.reply(request, fields.model, fields.reply, _Writer(), stream=bool(fields.stream))


async def count_tokens(request: Request) -> JSONResponse:
    """Return how many tokens a request for a reply would have the model read."""
    state = state_of(request)
    fields = await read_body(request, PromptFields, state.settings, *_IGNORED)
    async with state.shelf.use(fields.model) as served:
        tokens = await asyncio.to_thread(lambda: prompt_ids(served, fields.asked(served, {})))
    return JSONResponse({"input_tokens": len(tokens)})


class _Writer:
    """Writes a reply as the API has it."""

    def __init__(self) -> None:
        self._id = f"msg_{uuid.uuid4().hex}"

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for the reply, and return it."""
        blocks = await Blocks.whole(replies)
        return JSONResponse(
            self._message(served, replies, blocks)
            | _stop(blocks)
            | {"content": [_content(block) for block in blocks.all if block.complete or block.kind != "call"]}
        )

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as the reply goes on."""
        blocks = Blocks()
        yield _event("message_start", message=self._message(served, replies, blocks))
        async for found in replies.events():
            if found.progress is not None:
                yield _event("ping")
            for change in blocks.add(found):
                for piece in _pieces_of(change):
                    yield piece
        yield _event("message_delta", delta=_stop(blocks), usage=_usage(replies, blocks))
        yield _event("message_stop")

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        return event(error.anthropic(), "error")

    def _message(self, served: Served, replies: Replies, blocks: Blocks) -> dict[str, Any]:
        """Return a message without content."""
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": served.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(replies, blocks),
        }


def _usage(replies: Replies, blocks: Blocks) -> dict[str, Any]:
    """Return tokens as Anthropic counts them: a prompt is what was read and what was known already."""
    stream = replies.streams[0]
    known = stream.stats.cached_tokens
    return {
        "input_tokens": prompt_tokens(stream) - known,
        "cache_read_input_tokens": known,
        "cache_creation_input_tokens": 0,
        "output_tokens": stream.stats.tokens,
        "output_tokens_details": {"thinking_tokens": blocks.thought_tokens},
    }


def _stop(blocks: Blocks) -> dict[str, Any]:
    """Return why a reply ended."""
    if blocks.stop_string is not None:
        reason = "stop_sequence"
    elif blocks.finish == "length":
        reason = "max_tokens"
    else:
        reason = "tool_use" if blocks.calls else "end_turn"
    return {"stop_reason": reason, "stop_sequence": blocks.stop_string, "stop_details": None}


def _content(block: Block) -> dict[str, Any]:
    """Return a block as messages have it."""
    if block.kind == "text":
        return {"type": "text", "text": block.text, "citations": None}
    if block.kind == "thoughts":
        return {"type": "thinking", "thinking": block.text, "signature": _SIGNATURE}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": json_object(block.text) or {}}


def _pieces_of(change: Change) -> list[bytes]:
    """Return the events of a change."""
    block = change.block
    if change.step == "begin":
        return [_event("content_block_start", index=block.index, content_block=_begun(block))]
    if change.step == "more":
        return [_delta(block, _more(block, change.piece))]
    signed = {"type": "signature_delta", "signature": _SIGNATURE}
    ended = [_delta(block, signed)] if block.kind == "thoughts" else []
    return [*ended, _event("content_block_stop", index=block.index)]


def _begun(block: Block) -> dict[str, Any]:
    """Return a block that has only begun, which is not signed yet."""
    content = _content(replace(block, text=""))
    return content | {"signature": ""} if block.kind == "thoughts" else content


def _more(block: Block, piece: str) -> dict[str, Any]:
    if block.kind == "text":
        return {"type": "text_delta", "text": piece}
    if block.kind == "thoughts":
        return {"type": "thinking_delta", "thinking": piece}
    return {"type": "input_json_delta", "partial_json": piece}


def _delta(block: Block, delta: Mapping[str, Any]) -> bytes:
    return _event("content_block_delta", index=block.index, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
