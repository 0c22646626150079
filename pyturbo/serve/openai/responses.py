"""POST /v1/responses, as OpenAI's clients speak it. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from pydantic import Field
from starlette.requests import Request
from starlette.types import ASGIApp

from pyturbo._messages import shown
from pyturbo.serve.openai.items import messages_of, tools_of
from pyturbo.serve.openai.response_writer import ResponseWriter
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.body import Fields, read_body
from pyturbo.serve.requests.messages import known, refusal, required_text
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.requests.thinking import with_effort
from pyturbo.serve.requests.tool_choice import ANY_OBJECT, Places, constrained, require_function
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects.grammar import Choice

#: Fields that change no reply here. The calls that `max_tool_calls` limits are of tools that a server runs.
IGNORED = (
    *("user", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "max_tool_calls", "client_metadata"),
)
#: Fields that are of use only to a server that stores responses.
_STORED = ("previous_response_id", "conversation")
_SCHEMAS = {"text": None, "json_object": ANY_OBJECT}


class TextFormat(Fields):
    """What a reply must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    def schema_of_reply(self) -> Mapping[str, Any] | None:
        """Return the schema that the reply fits, if it has to fit one."""
        if self.type != "json_schema":
            return _SCHEMAS[self.type]
        if self.schema_ is None:
            raise refusal("text.format.schema", "expected a schema")
        return self.schema_


class TextFields(Fields):
    """What the text of a reply is like."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningFields(Fields):
    """How much thought a reply takes. Thoughts come whole, whatever summary is wanted."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(Fields):
    """What a stream has beside the reply."""

    include_obfuscation: bool | None = None  # padding, which none of our streams has


class ResponseFields(Fields):
    """The fields of a request."""

    model: str | None = None
    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    text: TextFields | None = None
    reasoning: ReasoningFields | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None

    def asked(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        for name in _STORED:
            if getattr(self, name) is not None:
                raise refusal(
                    name, "this server stores no responses; send all items of the conversation as input"
                )
        given = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_output_tokens}
        options = {name: value for name, value in given.items() if value is not None}
        options.setdefault("max_tokens", state.settings.max_tokens)
        schema = self.text.format.schema_of_reply() if self.text and self.text.format else None
        effort = None if self.reasoning is None else self.reasoning.effort
        budget, variables = with_effort(served.model, effort)
        asked = Asked(
            messages_of(self.instructions, self.input),
            budget | options,
            tools=tools_of(self.tools),
            variables=variables,
            one_call=self.parallel_tool_calls is False,
        )
        return constrained(served.model, asked, self._choice(), schema, Places("text.format"))

    def _choice(self) -> Choice | None:
        """Return the choice of a tool as chat completions have it."""
        if not isinstance(self.tool_choice, Mapping):
            return self.tool_choice
        kind = self.tool_choice.get("type")
        if kind == "allowed_tools":
            known("tool_choice", self.tool_choice, "type", "mode", "tools")
            tools = self.tool_choice.get("tools")
            if isinstance(tools, list):
                tools = [_chosen(f"tool_choice.tools.{i}", tool) for i, tool in enumerate(tools)]
            return {"type": kind, kind: {"mode": self.tool_choice.get("mode"), "tools": tools}}
        if kind != "function":
            raise refusal("tool_choice.type", f"expected function or allowed_tools, got {shown(kind)}")
        return _chosen("tool_choice", self.tool_choice)

    def echoed(self) -> dict[str, Any]:
        """Return what a response repeats of its request."""
        wanted = self.text.model_dump(by_alias=True, exclude_none=True) if self.text else {}
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None}
            if self.reasoning is None
            else self.reasoning.model_dump(),
            "store": False,
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}, **wanted},
            "tool_choice": "auto" if self.tool_choice is None else self.tool_choice,
            "tools": self.tools or [],
            "top_p": self.top_p,
            "truncation": "disabled",
        }


def _chosen(where: str, tool: Any) -> dict[str, Any]:
    """Return a function that is chosen as chat completions have it."""
    require_function(where, tool, "name")
    return {"type": "function", "function": {"name": required_text(where, tool, "name")}}


async def responses(request: Request) -> ASGIApp:
    """Reply to items."""
    state = state_of(request)
    fields = await read_body(request, ResponseFields, state.settings, *IGNORED)
    writer = ResponseWriter(fields.echoed())
    return await state.reply(request, fields.model, fields.asked, writer, stream=bool(fields.stream))


async def stored_response(request: Request) -> NoReturn:
    """Say that there are none."""
    name = request.path_params["name"]
    raise RequestError("not_found_error", f"response: this server stores none, got {shown(name)}")
