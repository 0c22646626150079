"""Messages of a chat, as chat templates take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyturbo._messages import shown
from pyturbo.serve.requests.request_error import RequestError

#: Fields of messages by role. Thoughts have several names.
_FIELDS = {
    "system": (),
    "developer": (),
    "user": (),
    "assistant": ("tool_calls", "refusal", "annotations", "reasoning_content", "reasoning", "thinking"),
    "tool": ("tool_call_id",),
}


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request of OpenAI's interface. Only text is supported.

    Templates know the role of a developer by its older name, system, and want one system prompt: several in a
    row are joined.
    """
    checked: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        found = _checked(f"messages.{i}", message)
        if checked and found["role"] == checked[-1]["role"] == "system":
            checked[-1]["content"] += "\n\n" + found["content"]
        else:
            checked.append(found)
    return checked


def plain_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the texts of messages, each on a line, for a model without a chat template to go on from.

    Examples:
        >>> from pyturbo.serve.requests.messages import plain_text
        >>> plain_text([{"role": "user", "content": "Once"}, {"role": "assistant", "content": " upon"}])
        'Once\\n upon'
    """
    return "\n".join(message["content"] for message in messages if message["content"])


def _checked(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or role not in _FIELDS:
        raise refusal(f"{where}.role", f"expected one of {', '.join(_FIELDS)}, got {shown(role)}")
    known(where, message, "role", "content", "name", *_FIELDS[role])
    content = message.get("content")
    if content is None and role == "assistant":
        content = None if message.get("tool_calls") else ""
    else:
        content = content_text(f"{where}.content", content)
    return {**message, "role": "system" if role == "developer" else role, "content": content}


def content_text(where: str, content: Any) -> str:
    """Return the text of a content, which is text or a list of parts."""
    if isinstance(content, list):
        return "".join(_text_of(f"{where}.{i}", part) for i, part in enumerate(content))
    if not isinstance(content, str):
        raise refusal(where, f"expected text or a list of parts, got {shown(content)}")
    return content


def _text_of(where: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if kind in ("text", "input_text", "output_text") else None
    if not isinstance(text, str):
        raise refusal(where, f"expected a part of type text, got {shown(part if kind is None else kind)}")
    return text


def required_text(where: str, part: Mapping[str, Any], name: str) -> str:
    """Return the text that a field has to be."""
    text = part.get(name)
    if not isinstance(text, str):
        raise refusal(f"{where}.{name}", f"expected text, got {shown(text)}")
    return text


def known(where: str, part: Mapping[str, Any], *names: str) -> None:
    """Refuse fields other than these, unless they are null."""
    for name, value in part.items():
        if name not in names and value is not None:
            raise refusal(f"{where}.{name}", "this field is not supported")


def refusal(where: str, expected: str) -> RequestError:
    """Return the error of a request with a wrong field."""
    return RequestError("invalid_request_error", f"{where}: {expected}", param=where)
