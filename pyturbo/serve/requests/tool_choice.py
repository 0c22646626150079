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
from pyturbo.text.dialects.grammar import Choice


def constrained(model: Model, asked: Asked, choice: Choice | None, schema: Mapping[str, Any] | None) -> Asked:
    """Return a request whose replies fit the schema, or the tools, of which `choice` may demand one."""
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
    grammar = model.tokenizer.dialect.grammar(asked.tools, choice or "auto", str(prompt))
    return replace(asked, options={**asked.options, "grammar": grammar})
