"""What a row of the table of supported fields is, and how a request with the field is made and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["supported", "accepted", "ignored", "refused"]
#: Asks the server, with further fields, and returns the reply.
Ask = Callable[..., Any]
#: Says whether a reply obeys the field; None instead of it: the reply is that without the field.
Shows = Callable[[Any, Ask], bool]


@dataclass(frozen=True)
class Row:
    """A field, or one form of it, and a request that shows how it is treated.

    Attributes:
        name: The field, and after a colon which form of it.
        meaning: What it does, or why it is refused; Markdown.
        value: What the request gives it.
        shows: Says whether the reply obeys the field.
        beside: Further fields of that request.
    """

    name: str
    state: State
    meaning: str
    value: Any
    shows: Shows | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def field(self) -> str:
        """The field at the top of the body."""
        return self.name.partition(":")[0].partition(".")[0]


@dataclass(frozen=True)
class Api:
    """The fields of one path.

    Attributes:
        path: The path.
        body: A request without optional fields.
        rows: All fields, in the order of the page.
    """

    path: str
    body: Mapping[str, Any]
    rows: tuple[Row, ...]


def supported(name: str, meaning: str, value: Any, shows: Shows, **beside: Any) -> Row:
    """Return the row of a field that replies obey."""
    return Row(name, "supported", meaning, value, shows, beside)


def accepted(name: str, meaning: str, value: Any, **beside: Any) -> Row:
    """Return the row of a field that asks for what a reply is anyway."""
    return Row(
        name, "accepted", meaning, value, lambda reply, ask: said(reply) == said(ask(**beside)), beside
    )


def ignored(name: str, meaning: str, value: Any) -> Row:
    """Return the row of a field that changes nothing."""
    return Row(name, "ignored", meaning, value)


def refused(name: str, meaning: str, value: Any) -> Row:
    """Return the row of a field that is an error."""
    return Row(name, "refused", meaning, value)


def text_of(reply: Any) -> str:
    """Return the text of a reply of any API, whole or in events."""
    if isinstance(reply, list):
        return "".join(map(_delta, reply))
    if "choices" in reply:
        choice = reply["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"] or "")
    if "output" in reply:
        parts = [part for item in reply["output"] if item["type"] == "message" for part in item["content"]]
    else:
        parts = [block for block in reply["content"] if block["type"] == "text"]
    return "".join(part["text"] for part in parts)


def _delta(event: Mapping[str, Any]) -> str:
    if event.get("choices"):
        choice = event["choices"][0]
        return str(choice["text"] if "text" in choice else choice["delta"].get("content") or "")
    delta = event.get("delta")
    return str(delta.get("text", "") if isinstance(delta, Mapping) else delta or "")


def events_of(text: str) -> list[Any]:
    """Return the data of the events of a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def thoughts_of(reply: Any) -> str:
    """Return the thoughts of a reply."""
    if "choices" in reply:
        return str(reply["choices"][0].get("message", {}).get("reasoning_content") or "")
    if "output" in reply:
        parts = [part for item in reply["output"] if item["type"] == "reasoning" for part in item["content"]]
        return "".join(part["text"] for part in parts)
    return "".join(block["thinking"] for block in reply["content"] if block["type"] == "thinking")


def calls_of(reply: Any) -> list[tuple[str, Any]]:
    """Return the names and arguments of the calls of a reply."""
    if "choices" in reply:
        message = reply["choices"][0].get("message", {})
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    if "output" in reply:
        items = [item for item in reply["output"] if item["type"] == "function_call"]
        return [(item["name"], json.loads(item["arguments"])) for item in items]
    return [(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"]


def tokens_of(reply: Any) -> int:
    """Return how many tokens a reply has."""
    usage = reply["usage"]
    return int(usage["completion_tokens"] if "completion_tokens" in usage else usage["output_tokens"])


def said(reply: Any) -> Any:
    """Return all that the model says in a reply of any API."""
    if isinstance(reply, list):
        return text_of(reply)
    return reply["data"] if "data" in reply else (text_of(reply), thoughts_of(reply), calls_of(reply))


def read_by(reply: Any) -> int:
    """Return how many tokens of a prompt the model read for a reply, or knew."""
    usage = reply.get("usage", reply)
    given = usage["prompt_tokens"] if "prompt_tokens" in usage else usage["input_tokens"]
    return int(given + usage.get("cache_read_input_tokens", 0))


def reads_more(**instead: Any) -> Shows:
    """Return what says whether the prompt is longer than that of a request with these fields instead."""
    return lambda reply, ask: read_by(reply) > read_by(ask(**instead))


def reads_less(**instead: Any) -> Shows:
    """Return what says whether the prompt is shorter than that of a request with these fields instead."""
    return lambda reply, ask: read_by(reply) < read_by(ask(**instead))


def without_thoughts(**instead: Any) -> Shows:
    """Return what says whether a reply has no thoughts, as one to a request with these fields has."""
    return lambda reply, ask: thoughts_of(reply) == "" != thoughts_of(ask(**instead))


def by_another_model(reply: Any, ask: Ask) -> bool:
    """Return whether the model "chat" replied, which is the first one, and another without the field."""
    return [each["model"] for each in (reply, ask(model=None), ask())] == ["chat", "chat", "stories"] and (
        said(reply) != said(ask())
    )


def changes(**beside: Any) -> Shows:
    """Return what says whether a reply is another one than without the field."""
    return lambda reply, ask: text_of(reply) != text_of(ask(**beside))


def same_as(**fields: Any) -> Shows:
    """Return what says whether a reply is that to a request with these fields instead."""
    return lambda reply, ask: text_of(reply) == text_of(ask(**fields))
