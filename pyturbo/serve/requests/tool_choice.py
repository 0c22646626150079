"""What a reply may be: text, calls of tools, or JSON of a schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pyturbo._messages import label, shown
from pyturbo.model import Model
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.messages import known, refusal, required_text
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.text.dialects import Tools, as_functions
from pyturbo.text.dialects.grammar import Choice

#: The schema of any JSON object.
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}

_SHOWN_NAMES = 16  # in a message


@dataclass(frozen=True)
class Places:
    """The fields by which the requests of an API say what replies may be.

    Attributes:
        schema: What has the schema of a reply.
        function: What has the name of the function that is chosen.
        allowed: What has the tools that are allowed.
    """

    schema: str
    function: str = "tool_choice"
    allowed: str = "tool_choice"


def constrained(
    model: Model, asked: Asked, choice: Choice | None, schema: Mapping[str, Any] | None, places: Places
) -> Asked:
    """Return a request whose replies fit the schema, or the tools, of which `choice` may demand one.

    `choice` is that of OpenAI's chat completions; `places` are for what is wrong.
    """
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise refusal("tool_choice", f"expected none, auto, required or a tool, got {shown(choice)}")
    if asked.tools is None and choice not in (None, "none", "auto"):
        raise refusal("tool_choice", "expected tools with it")
    if choice == "none":
        asked = replace(asked, tools=None)
    given = [name for name in ("regex", "grammar") if asked.options.get(name) is not None]
    if schema is not None:
        given.append(places.schema)
    if asked.tools is not None:
        given.append("tools")
    if len(given) > 1:
        raise refusal(given[1], f"expected none beside {given[0]}")
    if schema is not None:
        return replace(asked, options={**asked.options, "schema": schema})
    if asked.tools is None:
        return asked
    if not model.tokenizer.dialect.call_markers:
        raise RequestError("invalid_request_error", "tools: this model knows no tools", param="tools")
    prompt = model.prompt_text(asked.prompt, asked.tools, asked.variables or None)
    tools, mode = _allowed_tools(asked.tools, choice, places)
    grammar = model.tokenizer.dialect.grammar(tools, mode, str(prompt))
    return replace(asked, options={**asked.options, "grammar": grammar})


def require_function(where: str, tool: Any, *names: str) -> None:
    """Refuse what does not choose a function, and fields other than its type and these."""
    if not isinstance(tool, Mapping):
        raise refusal(where, f"expected a function, got {shown(tool)}")
    if tool.get("type") != "function":
        raise refusal(f"{where}.type", f"expected function, got {shown(tool.get('type'))}")
    known(where, tool, "type", *names)


def _allowed_tools(tools: Tools, choice: Choice | None, places: Places) -> tuple[Tools, Choice]:
    """Return the tools that a reply may call, and how: the prompt has all of them, whatever is allowed."""
    if not isinstance(choice, Mapping):
        return tools, choice or "auto"
    kind = choice.get("type")
    if kind == "function":
        name = _chosen("tool_choice", choice)
        return _named(tools, f"{places.function}.name", [name]), {"type": kind, "function": {"name": name}}
    if kind != "allowed_tools":
        raise refusal("tool_choice.type", f"expected function or allowed_tools, got {shown(kind)}")
    known("tool_choice", choice, "type", kind)
    allowed = choice.get(kind)
    mode = allowed.get("mode") if isinstance(allowed, Mapping) else None
    if not isinstance(allowed, Mapping) or mode not in ("auto", "required"):
        raise refusal(f"{places.allowed}.mode", f"expected auto or required, got {shown(mode)}")
    known(f"tool_choice.{kind}", allowed, "mode", "tools")
    listed = allowed.get("tools")
    if not isinstance(listed, list) or not listed:
        raise refusal(f"{places.allowed}.tools", f"expected a list of tools, got {shown(listed)}")
    names = [_chosen(f"{places.allowed}.tools.{i}", each) for i, each in enumerate(listed)]
    return _named(tools, f"{places.allowed}.tools", names), mode


def _chosen(where: str, tool: Any) -> str:
    """Return the name of a function that is chosen."""
    require_function(where, tool, "function")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise refusal(f"{where}.function", f"expected an object with a name, got {shown(function)}")
    known(f"{where}.function", function, "name")
    return required_text(f"{where}.function", function, "name")


def _named(tools: Tools, where: str, names: list[str]) -> list[Any]:
    """Return the tools that are named."""
    given = {tool["function"]["name"]: tool for tool in as_functions(tools) or ()}
    for name in names:
        if name not in given:
            raise refusal(where, f"expected one of {_listed(given)}, got {shown(name)}")
    wanted = set(names)
    return [tool for name, tool in given.items() if name in wanted]


def _listed(names: Collection[str]) -> str:
    """Return names for a message: the first ones, and how many more there are."""
    left = len(names) - _SHOWN_NAMES
    return ", ".join(map(label, islice(names, _SHOWN_NAMES))) + (f" and {left} more" if left > 0 else "")
