"""Messages of a chat, as chat templates take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyturbo._messages import shown
from pyturbo.serve.request_error import RequestError

_ROLES = ("system", "developer", "user", "assistant", "tool")


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request of OpenAI's interface. Only text is supported.

    Templates know the role of a developer by its older name, system.
    """
    return [_checked(f"messages.{i}", message) for i, message in enumerate(messages)]


def _checked(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        raise refusal(f"{where}.role", f"expected one of {', '.join(_ROLES)}, got {shown(role)}")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_text_of(f"{where}.content.{i}", part) for i, part in enumerate(content))
    elif content is None and role == "assistant":
        content = None if message.get("tool_calls") else ""
    elif not isinstance(content, str):
        raise refusal(f"{where}.content", f"expected text or a list of parts, got {shown(content)}")
    return {**message, "role": "system" if role == "developer" else role, "content": content}


def _text_of(where: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if kind in ("text", "input_text", "output_text") else None
    if not isinstance(text, str):
        raise refusal(where, f"expected a part of type text, got {shown(part if kind is None else kind)}")
    return text


def refusal(where: str, expected: str) -> RequestError:
    """Return the error of a request with a wrong field."""
    return RequestError("invalid_request_error", f"{where}: {expected}", param=where)
