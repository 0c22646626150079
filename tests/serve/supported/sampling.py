"""How replies are sampled and sent: fields that chat completions and completions of text share."""

from __future__ import annotations

import re
from typing import Any

from serve.supported.rows import (
    Row,
    accepted,
    by_another_model,
    changes,
    ignored,
    same_as,
    supported,
    text_of,
    tokens_of,
)

_HOT: dict[str, Any] = {"temperature": 5.0, "seed": 1}
_WARM: dict[str, Any] = {"temperature": 1.0, "seed": 1}
_ENDS_AT_ONCE = {"logit_bias": {"0": 100.0}}  # the token that ends a text of the bundled model
_DRY: dict[str, Any] = {"max_tokens": 12, "dry_multiplier": 5.0}


def sampling(repeats: dict[str, Any]) -> tuple[Row, ...]:
    """Return the rows; `repeats` are the fields of a request whose prompt repeats itself."""
    dry = {**_DRY, **repeats}
    return (
        supported("model", "name of a model; without it the first one", "chat", by_another_model),
        supported(
            "stream",
            "events",
            True,
            lambda reply, ask: isinstance(reply, list) and text_of(reply) == text_of(ask()),
        ),
        supported(
            "stream_options.include_usage",
            "`usage` in the last event",
            {"include_usage": True},
            lambda reply, ask: reply[-1]["usage"]["completion_tokens"] == 8,
            stream=True,
        ),
        accepted(
            "stream_options.include_obfuscation",
            "no stream has padding",
            {"include_obfuscation": False},
            stream=True,
        ),
        supported(
            "n",
            "replies to one prompt, with seeds of their own",
            2,
            lambda reply, ask: (
                [text_of({"choices": [choice]}) for choice in reply["choices"]]
                == [text_of(ask(**_HOT)), text_of(ask(**_HOT | {"seed": 2}))]
                and text_of(ask(**_HOT)) != text_of(ask(**_HOT | {"seed": 2}))
            ),
            **_HOT,
        ),
        supported(
            "max_tokens",
            "the longest reply; the server may allow less",
            3,
            lambda reply, ask: tokens_of(reply) == 3,
        ),
        supported("temperature", "0 takes the likeliest token", 5.0, changes(), seed=1),
        supported("top_p", "", 1e-9, same_as(), **_HOT),
        supported(
            "seed",
            "the same reply, but rounding may change it once the prompt is known; -1 is none",
            7,
            same_as(temperature=5.0, seed=7),
            temperature=5.0,
        ),
        supported(
            "stop",
            "a text or up to 64, each of at most 256 characters",
            ["little"],
            lambda reply, ask: text_of(reply) == text_of(ask()).partition("little")[0],
        ),
        supported("presence_penalty", "", 2.0, changes(max_tokens=40), max_tokens=40),
        supported("frequency_penalty", "", 2.0, changes(max_tokens=40), max_tokens=40),
        supported(
            "logit_bias",
            "by token id, or by the text of a token",
            {",": -100.0},
            lambda reply, ask: not text_of(reply).startswith(",") and text_of(ask()).startswith(","),
        ),
        supported("top_k", "not OpenAI's; 0 and -1 are none", 1, same_as(), **_HOT),
        supported("min_p", "not OpenAI's", 1.0, same_as(), **_HOT),
        supported("repetition_penalty", "not OpenAI's", 1.9, changes(max_tokens=40), max_tokens=40),
        supported("min_tokens", "not OpenAI's", 3, lambda reply, ask: tokens_of(reply) >= 3, **_ENDS_AT_ONCE),
        supported(
            "ignore_eos", "not OpenAI's", True, lambda reply, ask: tokens_of(reply) == 8, **_ENDS_AT_ONCE
        ),
        supported("typical_p", "not OpenAI's", 0.01, changes(**_WARM), **_WARM),
        supported("top_n_sigma", "not OpenAI's", 0.0001, same_as(), **_WARM),
        supported("xtc_probability", "not OpenAI's", 1.0, changes(**_WARM), **_WARM, xtc_threshold=0.01),
        supported(
            "xtc_threshold",
            "not OpenAI's",
            0.01,
            changes(**_WARM, xtc_probability=1.0),
            **_WARM,
            xtc_probability=1.0,
        ),
        supported("dry_multiplier", "not OpenAI's", 5.0, changes(**repeats), **repeats),
        supported("dry_base", "not OpenAI's", 1.0001, changes(**dry), **dry),
        supported("dry_allowed_length", "not OpenAI's", 30, changes(**dry), **dry),
        supported("dry_window", "not OpenAI's", 2, changes(**dry), **dry),
        supported("dry_breakers", "not OpenAI's", ["."], changes(**dry), **dry),
        supported(
            "regex",
            "not OpenAI's; all of the reply matches it",
            "[0-9]{3}",
            lambda reply, ask: re.fullmatch("[0-9]{3}", text_of(reply)) is not None,
        ),
        supported(
            "grammar",
            "not OpenAI's; a Lark grammar of the reply",
            'start: "x" "y"',
            lambda reply, ask: text_of(reply) == "xy",
        ),
    )


#: Fields that change no reply here.
IGNORED = (
    ignored("user", "", "somebody"),
    ignored("metadata", "", {"a": "b"}),
    ignored("store", "nothing is stored", True),
    ignored("service_tier", "", "auto"),
    ignored("safety_identifier", "", "somebody"),
    ignored("prompt_cache_key", "known prompts are found without it", "a"),
    ignored("prompt_cache_options", "", {}),
    ignored("prompt_cache_retention", "", "24h"),
    ignored("prediction", "", {"type": "content", "content": "a"}),
)
