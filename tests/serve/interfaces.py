"""One prompt, asked by each interface of a server that streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"  # the end of a stream of OpenAI's older interfaces


@dataclass(frozen=True)
class Interface:
    """How a prompt is asked, and where the text of the reply is.

    Attributes:
        path: Where requests go.
        body: Makes a request of a prompt and a number of tokens.
        text: Finds the text in a whole reply.
        tokens: Finds the number of tokens of a whole reply.
        piece: Finds the text that an event of a stream adds.
        ends: Whether an event is the last one of a stream.
    """

    path: str
    body: Callable[[str, int], dict[str, Any]]
    text: Callable[[Mapping[str, Any]], str]
    tokens: Callable[[Mapping[str, Any]], int]
    piece: Callable[[Any], str]
    ends: Callable[[Any], bool]


def _completion(prompt: str, tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0}


def _messages(prompt: str, tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0}


def _response(prompt: str, tokens: int) -> dict[str, Any]:
    return {"input": prompt, "max_output_tokens": tokens, "temperature": 0}


def _delta(event: Any) -> str:
    """Return the text of an event with a type; others have none."""
    if event["type"] == "content_block_delta":
        return str(event["delta"]["text"])
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


INTERFACES = (
    Interface(
        "/v1/completions",
        _completion,
        text=lambda reply: reply["choices"][0]["text"],
        tokens=lambda reply: reply["usage"]["completion_tokens"],
        piece=lambda event: "" if event == DONE else event["choices"][0]["text"],
        ends=lambda event: event == DONE,
    ),
    Interface(
        "/v1/chat/completions",
        _messages,
        text=lambda reply: reply["choices"][0]["message"]["content"],
        tokens=lambda reply: reply["usage"]["completion_tokens"],
        piece=lambda event: "" if event == DONE else event["choices"][0]["delta"].get("content", ""),
        ends=lambda event: event == DONE,
    ),
    Interface(
        "/v1/messages",
        lambda prompt, tokens: {"model": "pyturbo", **_messages(prompt, tokens)},
        text=lambda reply: "".join(block["text"] for block in reply["content"]),
        tokens=lambda reply: reply["usage"]["output_tokens"],
        piece=_delta,
        ends=lambda event: event["type"] == "message_stop",
    ),
    Interface(
        "/v1/responses",
        _response,
        text=lambda reply: "".join(part["text"] for item in reply["output"] for part in item["content"]),
        tokens=lambda reply: reply["usage"]["output_tokens"],
        piece=_delta,
        ends=lambda event: event["type"] in ("response.completed", "response.incomplete"),
    ),
)
