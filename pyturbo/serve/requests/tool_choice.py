"""What a reply may be: text, calls of tools, or JSON of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyturbo._messages import shown
from pyturbo.model import Model
from pyturbo.serve.replies.replies import Asked
from pyturbo.serve.requests.messages import refusal
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.text.dialects import Tools
from pyturbo.text.dialects.grammar import Choice


def constrained(model: Model, asked: Asked, choice: Choice | None, schema: Mapping[str, Any] | None) -> Asked:
    """Return a request whose replies fit the schema, or the tools, of which `choice` may demand one.

    `choice` is that of OpenAI's chat completions.
    """
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise refusal("tool_choice", f"expected none, auto, required or a tool, got {shown(choice)}")
    if asked.tools is None and choice not in (None, "none", "auto"):
        raise refusal("tool_choice", "expected tools with it")
    if choice == "none":
        asked = replace(asked, tools=None)
    given = [name for name in ("regex", "grammar") if asked.options.get(name) is not None]
    if schema is not None:
        given.append("response_format")
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
    tools, mode = _callable(asked.tools, choice)
    grammar = model.tokenizer.dialect.grammar(tools, mode, str(prompt))
    return replace(asked, options={**asked.options, "grammar": grammar})


def _callable(tools: Tools, choice: Choice | None) -> tuple[Tools, Choice]:
    """Return the tools that a reply may call, and how: the prompt has all of them, whatever is allowed."""
    if not isinstance(choice, Mapping):
        return tools, choice or "auto"
    kind = choice.get("type")
    if kind == "function":
        named = _named(tools, "tool_choice.name", [choice])
        return named, {"type": kind, "function": {"name": _name(choice)}}
    if kind != "allowed_tools":
        raise refusal("tool_choice.type", f"expected function or allowed_tools, got {shown(kind)}")
    allowed = choice.get("allowed_tools")
    mode = allowed.get("mode") if isinstance(allowed, Mapping) else None
    if not isinstance(allowed, Mapping) or mode not in ("auto", "required"):
        raise refusal("tool_choice.mode", f"expected auto or required, got {shown(mode)}")
    listed = allowed.get("tools")
    if not isinstance(listed, list) or not listed:
        raise refusal("tool_choice.tools", f"expected a list of tools, got {shown(listed)}")
    return _named(tools, "tool_choice.tools", listed), mode


def _named(tools: Tools, where: str, wanted: list[Any]) -> list[Any]:
    """Return the tools that are named."""
    known = {_name(tool): tool for tool in tools}
    for each in wanted:
        if _name(each) not in known:
            got = each if _name(each) is None else _name(each)
            raise refusal(where, f"expected one of {', '.join(map(str, known))}, got {shown(got)}")
    return [tool for name, tool in known.items() if name in [_name(each) for each in wanted]]


def _name(tool: Any) -> str | None:
    """Return the name of a function, in the form of chat completions or of responses."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
