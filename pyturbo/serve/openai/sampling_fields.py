"""The fields of requests that say how replies are sampled, as options of `Model.stream`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from pyturbo.serve.requests.body import Fields
from pyturbo.serve.requests.limits import few_stops, require_few
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings

#: Fields that are options of the same name.
_OPTIONS = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop"),
    *("presence_penalty", "frequency_penalty", "min_tokens", "ignore_eos", "typical_p", "top_n_sigma"),
    *("xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("dry_window", "dry_breakers", "regex", "grammar", "reasoning_budget"),
)
#: Fields of OpenAI's interface that change no reply here.
IGNORED = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_options", "prompt_cache_retention", "prediction"),
)

_DIGITS = 10  # of the longest token id
_BREAKERS, _LONGEST_BREAKER = 16, 16  # each is looked for in the whole vocabulary


class StreamOptions(Fields):
    """What a stream has beside the reply."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding, which none of our streams has


class SamplingFields(Fields):
    """How replies are sampled, and how they are sent. Those after `logit_bias` are not OpenAI's."""

    model: str | None = None
    n: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_window: int | None = None
    dry_breakers: list[str] | None = None
    regex: str | None = None
    grammar: str | None = None
    reasoning_budget: int | None = Field(None, ge=0)

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: str | list[str] | None) -> str | list[str] | None:
        return few_stops(stop)

    @field_validator("dry_breakers")
    @classmethod
    def _few_breakers(cls, texts: list[str] | None) -> list[str] | None:
        require_few(texts or [], _BREAKERS, _LONGEST_BREAKER)
        return texts

    @property
    def includes_usage(self) -> bool:
        """Whether the last event of a stream has the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def options(self, settings: Settings) -> dict[str, Any]:
        """Return the options of `Model.stream`."""
        options = {name: getattr(self, name) for name in _OPTIONS if getattr(self, name) is not None}
        if options.get("top_k") == -1:  # as other servers take it for none, and so they do a seed of -1
            options["top_k"] = 0
        if options.get("seed") == -1:
            del options["seed"]
        options["max_tokens"] = settings.max_tokens if self.max_tokens is None else self.max_tokens
        if self.logit_bias is not None:
            options["logit_bias"] = {_token(key): bias for key, bias in self.logit_bias.items()}
        return options

    def count(self, settings: Settings) -> int:
        """Return the number of replies."""
        count = self.n or 1
        if count > settings.max_replies:
            message = f"n: expected at most {settings.max_replies}, got {count}"
            raise RequestError("invalid_request_error", message, param="n")
        return count


def _token(key: str) -> int | str:
    """Return the token of a bias: digits are its id."""
    return int(key) if key.isdecimal() and len(key) <= _DIGITS else key
