"""POST /v1/messages and POST /v1/messages/count_tokens, as Anthropic's clients speak them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from pyturbo._messages import shown
from pyturbo.model import Model
from pyturbo.serve.anthropic.context_edits import ContextManagement
from pyturbo.serve.anthropic.history import messages_of, tools_of
from pyturbo.serve.anthropic.message_writer import MessageWriter
from pyturbo.serve.requests.asked import Asked, prompt_ids
from pyturbo.serve.requests.body import Fields, read_body
from pyturbo.serve.requests.limits import few_stops
from pyturbo.serve.requests.messages import refusal
from pyturbo.serve.requests.thinking import Thinking, with_budget, with_effort
from pyturbo.serve.requests.tool_choice import Places, constrained
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects.grammar import Choice

#: Fields that change no reply here. What a cache can know of a prompt is found without being told.
IGNORED = ("metadata", "service_tier", "cache_control", "speed", "user_profile_id", "workspace_id")


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

    def choice(self) -> Choice:
        """Return the choice as OpenAI's interface has it."""
        if self.type != "tool" and self.name is not None:
            raise refusal("tool_choice.name", f"expected none with type {self.type}, got {shown(self.name)}")
        if self.type == "tool":
            if self.name is None:
                raise refusal("tool_choice.name", "expected the name of a tool with type tool, got none")
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
    context_management: ContextManagement | None = None

    def asked(self, served: Served, options: Mapping[str, Any]) -> Asked:
        """Return what the request asks of a model."""
        tools, choice, messages = tools_of(self.tools), self.tool_choice, self.messages
        if self.context_management is not None:
            messages = self.context_management.applied(messages)
        config = OutputConfig() if self.output_config is None else self.output_config
        budget, switch = ({}, {}) if self.thinking is None else self.thinking.found(served.model)
        _, effort = with_effort(served.model, config.effort)
        asked = Asked(
            messages_of(self.system, messages),
            budget | dict(options),
            tools=tools,
            variables=switch | effort,
            one_call=bool(choice and choice.disable_parallel_tool_use),
        )
        schema = None if config.format is None else config.format.schema_
        chosen = None if choice is None else choice.choice()
        return constrained(served.model, asked, chosen, schema, Places("output_config.format"))


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
    fields = await read_body(request, MessageFields, state.settings, *IGNORED)
    return await state.reply(request, fields.model, fields.reply, MessageWriter(), stream=bool(fields.stream))


async def count_tokens(request: Request) -> JSONResponse:
    """Return how many tokens a request for a reply would have the model read."""
    state = state_of(request)
    fields = await read_body(request, PromptFields, state.settings, *IGNORED)
    async with state.shelf.use(fields.model) as served:
        tokens = await state.preparation.run(served, lambda: prompt_ids(served, fields.asked(served, {})))
    return JSONResponse({"input_tokens": len(tokens)})
