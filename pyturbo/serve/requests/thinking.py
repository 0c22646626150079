"""How much thought a reply takes: options of `Model.stream`, and variables of the chat template."""

from __future__ import annotations

from typing import Any

from pyturbo.model import Model

_SWITCH = "enable_thinking"  # the variable by which many templates turn thoughts on and off

Thinking = tuple[dict[str, Any], dict[str, Any]]


def with_effort(model: Model, effort: str | None) -> Thinking:
    """Return the options and variables of an effort. Templates know its words; "none" means no thoughts."""
    if effort == "none":
        return with_budget(model, 0)
    return {}, {} if effort is None else {"reasoning_effort": effort}


def with_budget(model: Model, tokens: int | None) -> Thinking:
    """Return the options and variables of thoughts with at most `tokens` tokens; None: no limit."""
    known = _SWITCH in (model.tokenizer.chat_template or "")
    options = {} if tokens is None else {"reasoning_budget": tokens}
    return options, {_SWITCH: tokens != 0} if known else {}
