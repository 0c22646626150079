"""Rendering of messages to the text of a prompt, in which only the template writes special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.text.chat_calls import has_calls, with_calls, with_thoughts
from pyturbo.text.chat_text import ChatText, unused_markers
from pyturbo.text.special_texts import SpecialTexts, strings, text_of, with_text

if TYPE_CHECKING:
    from pyturbo.text.chat_template import ChatTemplate

_GUARDED = ("tools", "documents")  # variables with text that is not trusted
_SPACE = "\u2003"  # put after a reply, to see whether the template trims it


def render(
    template: ChatTemplate,
    special: SpecialTexts,
    messages: Sequence[Mapping[str, Any]],
    generate: bool,
    variables: Mapping[str, Any],
) -> ChatText:
    """Return the prompt. It has a break wherever a message spells a special token.

    With `generate` it ends where the reply begins; a last message of the assistant is a reply to continue.
    """
    check(messages, variables)
    if any(isinstance(message.get("content"), (list, tuple)) for message in messages):
        messages = messages if template.reads_parts else _joined(messages)
    if has_calls(messages) and template.call_form is not None:
        messages = with_calls(messages, template.call_form)
    messages = with_thoughts(messages, template.text)
    guarded = {name: variables[name] for name in _GUARDED if name in variables}
    goes_on = generate and bool(messages) and messages[-1]["role"] == "assistant"
    try:
        spelled = special.in_any([*messages, guarded])
        if not spelled and not goes_on:
            return ChatText(template.render(messages, generate, variables))
        marker, end = unused_markers([template.text, *strings([*messages, dict(variables)])], 2)
        if spelled:
            messages = special.mark(list(messages), marker)
            variables = {**variables, **special.mark(guarded, marker)}
    except RecursionError:
        raise ArgumentError("chat: messages: expected less nesting") from None
    if goes_on:
        messages = [*messages[:-1], _ended(messages[-1], end + _SPACE)]
    text = template.render(messages, generate and not goes_on, variables)
    for each in (marker, end):  # as JSON in ASCII and Python's repr write them
        text = text.replace(f"\\u{ord(each):x}", each)
    return ChatText.unmarked(_up_to(end, text) if goes_on else text, marker)


def check(messages: Any, variables: Mapping[str, Any]) -> None:
    """Refuse anything but a list of messages, each with role and content, and refuse reserved variables."""
    if "add_generation_prompt" in variables:
        raise ArgumentError("chat: add_generation_prompt: expected the argument generate instead")
    if "messages" in variables:
        raise ArgumentError("chat: messages: expected one list of messages, got a second one by name")
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise ArgumentError(f"chat: messages: expected a list of messages, got {shown(messages)}")
    for i, message in enumerate(messages):
        where = f"chat: messages[{i}]"
        if not isinstance(message, Mapping):
            raise ArgumentError(f"{where}: expected a mapping with role and content, got {shown(message)}")
        if not isinstance(message.get("role"), str):
            raise ArgumentError(f"{where}: role: expected text, got {shown(message.get('role'))}")
        content = message.get("content")
        if content is None and "tool_calls" in message:
            continue
        if not isinstance(content, (str, list, tuple)):
            raise ArgumentError(f"{where}: content: expected text or a list of parts, got {shown(content)}")


def _joined(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return messages whose content is text, for a template that supports nothing else."""
    joined = []
    for i, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, (list, tuple)):
            for j, part in enumerate(content):
                kind = part.get("type", "text") if isinstance(part, Mapping) else "text"
                if kind != "text" or text_of(part) is None:
                    got = shown(part if kind == "text" else kind)
                    raise ArgumentError(
                        f"chat: messages[{i}]: content[{j}]: expected a part of type 'text', "
                        f"all that the template can write, got {got}"
                    )
            message = {**message, "content": "".join(text_of(part) or "" for part in content)}
        joined.append(message)
    return joined


def _ended(message: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Return a message with something added after its text."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else list(content or ())
    last = text_of(parts[-1]) if parts else None
    if last is None or message.get("tool_calls"):
        raise ArgumentError("chat: the last message: expected text, which the reply continues")
    parts[-1] = with_text(parts[-1], last + end)
    return {**message, "content": parts[0] if isinstance(content, str) else parts}


def _up_to(end: str, text: str) -> str:
    """Return the text before the end of the reply."""
    before, *after = text.split(end)
    if len(after) != 1:
        raise ArgumentError(
            f"chat: the last message: expected a template that writes a reply once, so that it can be "
            f"continued, got it {len(after)} times"
        )
    return before if after[0].startswith(_SPACE) else before.rstrip()
