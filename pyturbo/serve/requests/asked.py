"""What requests of all interfaces come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyturbo.engine.generation import Prompt, is_chat
from pyturbo.serve.requests.messages import plain_text, refusal
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects import Tools


@dataclass(frozen=True)
class Asked:
    """What a request asks the model for.

    Attributes:
        prompt: Text, token ids, or messages.
        options: Those of `Model.stream`.
        count: How many replies; further ones have the next seeds.
        tools: Functions that replies may call.
        variables: Of the chat template.
        one_call: Whether a reply ends after its first call.
    """

    prompt: Prompt
    options: Mapping[str, Any]
    count: int = 1
    tools: Tools | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    one_call: bool = False


def prompt_ids(served: Served, asked: Asked) -> list[int]:
    """Return the tokens that a request has the model read."""
    prompt = served.model.prompt_text(prompt_of(served, asked), asked.tools, asked.variables or None)
    return served.model.prompt_ids(prompt, any_length=True)


def prompt_of(served: Served, asked: Asked) -> Prompt:
    """Return the prompt; for a model without a chat template, the texts of messages."""
    prompt = asked.prompt
    if served.chats or not is_chat(prompt):
        return prompt
    if asked.variables:
        raise refusal(next(iter(asked.variables)), "this model has no chat template that could take it")
    return plain_text(prompt)  # type: ignore[arg-type]
