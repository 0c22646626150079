"""What a request of Anthropic's interface leaves out of its own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from pyturbo.serve.requests.body import Fields

_THOUGHTS = ("thinking", "redacted_thinking")


class ThoughtTurns(Fields):
    """The last turns whose thoughts are kept."""

    type: Literal["thinking_turns"] = "thinking_turns"
    value: int = Field(ge=1)


class ClearThinking(Fields):
    """Leaves thoughts out of all turns but the last ones that have some."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"] | ThoughtTurns | None = None

    def applied(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return messages without these thoughts. Results of calls do not begin another turn."""
        left = 1 if self.keep is None else len(messages) if self.keep == "all" else self.keep.value
        made: list[dict[str, Any]] = []
        thought = False  # whether the turn has thoughts
        for message in reversed(messages):
            if message.get("role") == "user" and not _goes_on(message):
                if thought:
                    left -= 1
                thought = False
            if message.get("role") == "assistant" and _thinks(message):
                thought = True
                if left <= 0:
                    message = {
                        **message,
                        "content": [block for block in message["content"] if not _thought(block)],
                    }
            made.append(dict(message))
        return made[::-1]


class ContextManagement(Fields):
    """What is left out of the messages: thoughts, once."""

    edits: list[ClearThinking] = Field(default_factory=list, max_length=1)

    def applied(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages that are left."""
        left = [dict(message) for message in messages]
        for edit in self.edits:
            left = edit.applied(left)
        return left


def _thought(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _THOUGHTS


def _thinks(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(map(_thought, content))


def _goes_on(message: Mapping[str, Any]) -> bool:
    """Return whether a message of the user has only results of calls."""
    content = message.get("content")
    return isinstance(content, list) and all(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content
    )
