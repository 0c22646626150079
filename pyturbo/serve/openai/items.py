"""Items and tools of OpenAI's Responses, as chat templates take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyturbo._messages import shown
from pyturbo.serve.requests.messages import content_text, known, refusal, required_text
from pyturbo.text.dialects import Message, ToolCall

_ROLES = ("system", "developer", "user", "assistant")
#: The fields of each item, beside its type, id and status, which a reply has and which change nothing.
_FIELDS = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": ("summary", "content", "encrypted_content"),
}
_TOOL_FIELDS = ("type", "name", "description", "parameters", "strict")


def messages_of(instructions: str | None, items: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that items are, with the instructions before them."""
    history = _History()
    if instructions is not None:
        history.say("system", instructions)
    if isinstance(items, str):
        history.say("user", items)
    else:
        for i, item in enumerate(items):
            history.add(f"input.{i}", item)
    return history.ended()


class _History:
    """Messages of which the last may grow: thoughts, text and calls in a row are one reply."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._reply: Message | None = None
        self._names: dict[str, str] = {}  # of the functions that were called, by the name of the call
        self._readers: dict[str, Callable[[str, Mapping[str, Any]], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._result,
            "reasoning": self._thoughts,
        }

    def ended(self) -> list[dict[str, Any]]:
        """Return all messages."""
        if self._reply is not None:
            self._messages.append(self._reply.to_dict())
            self._reply = None
        return self._messages

    def say(self, role: str, text: str) -> None:
        """Add a message. Templates want one system prompt, so that several in a row are joined."""
        messages = self.ended()
        if role == "system" and messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n\n{text}"
        else:
            messages.append({"role": role, "content": text})

    def add(self, where: str, item: Mapping[str, Any]) -> None:
        """Add an item."""
        kind = item.get("type", "message" if "role" in item else None)
        if kind not in tuple(self._readers):
            got = shown(item if kind is None else kind)
            raise refusal(f"{where}.type", f"expected one of {', '.join(_FIELDS)}, got {got}")
        known(where, item, "type", "id", "status", *_FIELDS[kind])
        self._readers[kind](where, item)

    def _message(self, where: str, item: Mapping[str, Any]) -> None:
        role, text = item.get("role"), content_text(f"{where}.content", item.get("content"))
        if role not in _ROLES:
            raise refusal(f"{where}.role", f"expected one of {', '.join(_ROLES)}, got {shown(role)}")
        if role == "assistant":
            self._said().content += text
        else:
            self.say("system" if role == "developer" else role, text)

    def _call(self, where: str, item: Mapping[str, Any]) -> None:
        name, call = required_text(where, item, "name"), required_text(where, item, "call_id")
        self._said().tool_calls.append(ToolCall(name, required_text(where, item, "arguments"), call))
        self._names[call] = name

    def _result(self, where: str, item: Mapping[str, Any]) -> None:
        call = required_text(where, item, "call_id")
        if call not in self._names:
            raise refusal(
                f"{where}.call_id", f"expected that of a function_call before it, got {shown(call)}"
            )
        content = content_text(f"{where}.output", item.get("output"))
        message = {"role": "tool", "tool_call_id": call, "name": self._names[call], "content": content}
        self.ended().append(message)

    def _thoughts(self, where: str, item: Mapping[str, Any]) -> None:
        """Add thoughts. Those that are encrypted are left out, because nobody here can read them."""
        parts = item.get("content") or []
        if not isinstance(parts, list):
            raise refusal(f"{where}.content", f"expected a list of parts, got {shown(parts)}")
        for i, part in enumerate(parts):
            place = f"{where}.content.{i}"
            if not isinstance(part, Mapping) or part.get("type") != "reasoning_text":
                raise refusal(place, f"expected a part of type reasoning_text, got {shown(part)}")
            self._said().reasoning += required_text(place, part, "text")

    def _said(self) -> Message:
        """Return the reply under way."""
        if self._reply is None:
            self._reply = Message()
        return self._reply


def tools_of(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tools as functions. Those that a server would run itself are refused by name."""
    made = []
    for i, tool in enumerate(tools or ()):
        where, kind = f"tools.{i}", tool.get("type")
        if kind != "function":
            raise refusal(f"{where}.type", f"expected function, got {shown(kind)}")
        known(where, tool, *_TOOL_FIELDS)
        given = ("description", "parameters", "strict")
        function = {name: tool[name] for name in given if tool.get(name) is not None}
        made.append(
            {"type": "function", "function": {"name": required_text(where, tool, "name"), **function}}
        )
    return made or None
