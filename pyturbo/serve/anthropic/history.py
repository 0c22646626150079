"""Messages and tools of Anthropic's interface, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pyturbo._messages import shown
from pyturbo.serve.requests.messages import known, refusal, required_text
from pyturbo.text.dialects import Message, ToolCall

#: The blocks that messages of each role may have.
_BLOCKS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}
#: The fields of each block, beside its type and hints for a cache.
_FIELDS = {
    "text": ("text",),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
_TOOL_FIELDS = (
    *("name", "description", "input_schema", "type", "cache_control", "strict", "eager_input_streaming"),
)

Placed = tuple[str, Mapping[str, Any]]  # where a block stands in the request, and the block


def messages_of(
    system: str | Sequence[Mapping[str, Any]] | None, messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages with the system prompt before them. Those of one role in a row become one."""
    placed = [] if not system else [("system", block) for block in _blocks("system", "system", system)]
    for i, message in enumerate(messages):
        where, role = f"messages.{i}", message.get("role")
        if role not in tuple(_BLOCKS):
            raise refusal(f"{where}.role", f"expected one of {', '.join(_BLOCKS)}, got {shown(role)}")
        known(where, message, "role", "content")
        placed += [(str(role), block) for block in _blocks(f"{where}.content", role, message.get("content"))]
    names: dict[str, str] = {}  # of the functions that were called, by the name of the call
    made: list[dict[str, Any]] = []
    for role, group in groupby(placed, lambda pair: pair[0]):
        blocks = [block for _, block in group]
        if role == "assistant":
            made.append(_assistant(blocks, names))
        elif role == "user":
            made += _user(blocks, names)
        else:
            made.append({"role": role, "content": _joined(blocks)})
    return made


def _blocks(where: str, role: str, content: Any) -> list[Placed]:
    """Return the blocks of a content; text alone is one block."""
    if isinstance(content, str):
        return [(where, {"type": "text", "text": content})]
    if not isinstance(content, list):
        raise refusal(where, f"expected text or a list of blocks, got {shown(content)}")
    kinds = _BLOCKS[role]
    for i, block in enumerate(content):
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind not in kinds:
            got = shown(block if kind is None else kind)
            raise refusal(f"{where}.{i}", f"expected a block of type {' or '.join(kinds)}, got {got}")
        known(f"{where}.{i}", block, "type", "cache_control", *_FIELDS[kind])
    return [(f"{where}.{i}", block) for i, block in enumerate(content)]


def _joined(blocks: Iterable[Placed], between: str = "\n") -> str:
    return between.join(required_text(where, block, "text") for where, block in blocks)


def _assistant(blocks: Sequence[Placed], names: dict[str, str]) -> dict[str, Any]:
    """Return a reply. Thoughts that are encrypted are left out, because nobody here can read them."""
    calls = []
    for where, block in _of(blocks, "tool_use"):
        name, call = required_text(where, block, "name"), required_text(where, block, "id")
        given = block.get("input")
        if not isinstance(given, Mapping):
            raise refusal(f"{where}.input", f"expected an object, got {shown(given)}")
        calls.append(ToolCall(name, json.dumps(given, ensure_ascii=False), call))
        names[call] = name
    thoughts = [required_text(where, block, "thinking") for where, block in _of(blocks, "thinking")]
    return Message(_joined(_of(blocks, "text"), ""), "".join(thoughts), calls).to_dict()


def _user(blocks: Sequence[Placed], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return results, each a message of its own, and texts, those in a row as one."""
    made: list[dict[str, Any]] = []
    for kind, group in groupby(blocks, lambda placed: placed[1]["type"]):
        if kind == "text":
            made.append({"role": "user", "content": _joined(group)})
        else:
            made += [_result(where, block, names) for where, block in group]
    return made


def _result(where: str, block: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of a call. Templates know of no errors, so that the text says it is one."""
    call = required_text(where, block, "tool_use_id")
    if call not in names:
        raise refusal(
            f"{where}.tool_use_id", f"expected the id of a tool_use block before it, got {shown(call)}"
        )
    content = _joined(_blocks(f"{where}.content", "system", block.get("content") or ""))
    failed = block.get("is_error") or False
    if not isinstance(failed, bool):
        raise refusal(f"{where}.is_error", f"expected true or false, got {shown(failed)}")
    content = f"Error: {content}" if failed else content
    return {"role": "tool", "tool_call_id": call, "name": names[call], "content": content}


def _of(blocks: Iterable[Placed], kind: str) -> list[Placed]:
    return [placed for placed in blocks if placed[1]["type"] == kind]


def tools_of(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tools as functions. Those that a server would run itself are refused by name."""
    made = []
    for i, tool in enumerate(tools or ()):
        where, kind = f"tools.{i}", tool.get("type") or "custom"
        if kind != "custom":
            raise refusal(f"{where}.type", f"expected custom, got {shown(kind)}")
        known(where, tool, *_TOOL_FIELDS)
        schema = tool.get("input_schema")
        if not isinstance(schema, Mapping):
            raise refusal(f"{where}.input_schema", f"expected a JSON schema, got {shown(schema)}")
        function = {"name": required_text(where, tool, "name"), "parameters": schema}
        if tool.get("description") is not None:
            function["description"] = required_text(where, tool, "description")
        if tool.get("strict") is not None:
            function["strict"] = tool["strict"]
        made.append({"type": "function", "function": function})
    return made or None
