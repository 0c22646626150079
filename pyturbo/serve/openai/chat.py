"""POST /v1/chat/completions, as OpenAI's clients speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.types import ASGIApp

from pyturbo.serve.openai.choice_writer import Choice, ChoiceWriter
from pyturbo.serve.openai.sampling_fields import IGNORED, SamplingFields
from pyturbo.serve.replies import accounts
from pyturbo.serve.replies.accounts import ContentTokens
from pyturbo.serve.replies.replies import Event, Replies
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.body import Fields, read_body
from pyturbo.serve.requests.messages import checked_messages, refusal
from pyturbo.serve.requests.thinking import with_effort
from pyturbo.serve.requests.tool_choice import ANY_OBJECT, Places, constrained
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects import Message, Part, Reasoning, Text, ToolCallArguments, ToolCallBegin

_PLACES = Places("response_format", "tool_choice.function", "tool_choice.allowed_tools")


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
                raise refusal("response_format.json_schema", "expected a schema")
            return self.json_schema.schema_
        return ANY_OBJECT if self.type == "json_object" else None


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
    verbosity: Literal["medium"] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None  # variables of the template

    def asked(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        options = self.options(state.settings)
        if self.max_completion_tokens is not None:
            options["max_tokens"] = self.max_completion_tokens
        if self.top_logprobs and not self.logprobs:
            raise refusal("top_logprobs", "expected logprobs with it")
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
        return constrained(served.model, asked, self.tool_choice, schema, _PLACES)


async def chat_completions(request: Request) -> ASGIApp:
    """Reply to messages."""
    state = state_of(request)
    fields = await read_body(request, ChatFields, state.settings, *IGNORED)
    return await state.reply(request, fields.model, fields.asked, _Writer(fields), stream=bool(fields.stream))


class _Writer(ChoiceWriter):
    """Writes messages, and what is added to them."""

    PREFIX, WHOLE, PIECE = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, fields: ChatFields) -> None:
        super().__init__(fields)
        self._wants_logprobs = bool(fields.logprobs)
        self._content: dict[int, ContentTokens] = {}  # of each reply

    def whole_choice(self, served: Served, index: int, events: Sequence[Event]) -> Choice:
        message = Message.of([part for found in events for part in found.parts])
        return {
            "index": index,
            "message": {"refusal": None, **message.to_dict()},
            "logprobs": self._logprobs(served, events),
            "finish_reason": events[-1].finish,
        }

    def first_choices(self, served: Served, replies: Replies) -> list[Choice]:
        return [_choice(i, {"role": "assistant", "content": ""}) for i in range(len(replies.streams))]

    def next_choices(self, served: Served, found: Event) -> list[Choice]:
        """Return a choice for each part; the first with content has the logprobs, the last the end."""
        choices = [_choice(found.index, delta) for delta in map(_delta, found.parts) if delta]
        logprobs = self._logprobs(served, [found])
        for choice in [choice for choice in choices if "content" in choice["delta"]][:1]:
            choice["logprobs"] = logprobs
        if found.finish is not None:
            choices.append(_choice(found.index, {}, found.finish))
        return choices

    def _logprobs(self, served: Served, events: Sequence[Event]) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        tokenizer = served.model.tokenizer
        content = self._content.setdefault(events[0].index, ContentTokens(tokenizer.eos_ids))
        chunks = [chunk for found in events for chunk in content.of(found.chunk, found.parts)]
        return accounts.chat_logprobs(tokenizer, chunks)


def _choice(index: int, delta: Mapping[str, Any], finish: str | None = None) -> Choice:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


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
