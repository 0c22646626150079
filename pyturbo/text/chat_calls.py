"""Messages with calls and thoughts, in the form that a template takes.

Templates differ: some want the arguments of a call as a mapping, others as JSON text; some refuse a message
without content, others one with an empty content; and thoughts have several names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError

#: Renders messages and tools with a template.
Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]] | None], str]

THOUGHTS = ("reasoning_content", "reasoning", "thinking")
#: Of a call that is written to see how a template does it. Some templates want ids of nine characters.
_NAME, _ID, _KEY, _VALUE = "probe_name", "probe0000", "probe_key", "probe_value"
_PROPERTIES = {_KEY: {"type": "string", "description": "probe"}}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": [_KEY]}
_TOOL = {
    "type": "function",
    "function": {"name": _NAME, "description": "probe", "parameters": _PARAMETERS},
}


@dataclass(frozen=True)
class CallForm:
    """How a template takes messages with calls.

    Attributes:
        as_text: Whether arguments are JSON text; a mapping otherwise.
        empty: The content of a message that has none.
    """

    as_text: bool
    empty: str | None

    def of(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call in this form. Arguments that are no JSON object remain as they are."""
        function = call.get("function")
        if isinstance(function, Mapping):
            return {"type": "function", **call, "function": self._with_arguments(function)}
        return self._with_arguments(call)

    def _with_arguments(self, function: Mapping[str, Any]) -> dict[str, Any]:
        arguments = function.get("arguments")
        if self.as_text and isinstance(arguments, Mapping):
            return {**function, "arguments": json.dumps(arguments, ensure_ascii=False)}
        if not self.as_text and isinstance(arguments, str):
            try:
                value = json.loads(arguments, strict=False)
            except (ValueError, RecursionError):
                value = None
            return {**function, "arguments": value if isinstance(value, dict) else arguments}
        return dict(function)


def find_form(template: str, render: Render) -> CallForm | None:
    """Return the form in which a template writes a call right, found by trying; None if it writes none."""
    wrong = (f"'{_KEY}'", f'\\"{_KEY}', *(() if "None" in template else ("None",)))
    forms = [CallForm(as_text, empty) for as_text in (False, True) for empty in (None, "")]
    for answered, tools in ((True, [_TOOL]), (False, [_TOOL]), (True, None)):
        for form in forms:
            try:
                text = render(_probe(form, answered), tools)
            except ArgumentError:
                continue
            if _NAME in text and _VALUE in text and not any(each in text for each in wrong):
                return form
    return None


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message has calls. ArgumentError if they are no list of mappings."""
    found = False
    for i, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls is None:
            continue
        if not isinstance(calls, (list, tuple)) or not all(isinstance(call, Mapping) for call in calls):
            raise ArgumentError(
                f"chat: messages[{i}]: tool_calls: expected a list of calls, got {shown(calls)}"
            )
        found = found or bool(calls)
    return found


def with_calls(messages: Sequence[Mapping[str, Any]], form: CallForm) -> list[Mapping[str, Any]]:
    """Return messages whose calls have this form."""
    return [
        {**message, "content": message.get("content") or form.empty, "tool_calls": list(map(form.of, calls))}
        if (calls := message.get("tool_calls"))
        else message
        for message in messages
    ]


def with_thoughts(messages: Sequence[Mapping[str, Any]], template: str) -> list[Mapping[str, Any]]:
    """Return messages with their thoughts under the names that the template knows."""
    known = [name for name in THOUGHTS if re.search(rf"[.'\"]{name}\b", template)]
    return [_with_thoughts(message, known) for message in messages]


def _with_thoughts(message: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    thoughts = next((message[name] for name in THOUGHTS if message.get(name)), None)
    names = [name for name in known if message.get(name) is None]
    if thoughts is None or not names:
        return message
    if message.get("content") and message.get("tool_calls"):
        names = [name for name in names if name != "thinking"]  # templates with it refuse all three
    return {**message, **dict.fromkeys(names, thoughts)}


def _probe(form: CallForm, answered: bool) -> list[dict[str, Any]]:
    """Return a chat with a call, whose result may follow."""
    call = form.of({"id": _ID, "function": {"name": _NAME, "arguments": {_KEY: _VALUE}}})
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "probe"},
        {"role": "assistant", "content": form.empty, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": _ID, "name": _NAME, "content": "result"},
    ]
    return messages if answered else messages[:2]
