"""Prompts, the options of a reply, and the reply as data."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from numpy.typing import NDArray

from pyturbo._arguments import flag, index
from pyturbo._messages import shown
from pyturbo._sampling import Sampler
from pyturbo.checkpoint import SamplingDefaults
from pyturbo.errors import ArgumentError
from pyturbo.streaming import ExpertUse
from pyturbo.text import StopStrings, constraint
from pyturbo.text.dialects import Message, ToolCall

#: Text, token ids, or the messages of a chat.
Prompt = str | Sequence[int] | NDArray[Any] | Sequence[Mapping[str, Any]]

#: "stop": the model ended its reply, wrote a stop string, or a constraint lets nothing more follow.
#: "length": max_tokens or the context is used up.
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Chunk:
    """One token of a reply. Text is held back while it may be part of a character or of a stop string.

    Attributes:
        text: The text that is certain now.
        token: The token that was drawn.
        logprob: Log-probability of the token under the model, before penalties, filters and temperature.
        finish_reason: In the last chunk "stop" (the model, a stop string, or a constraint that nothing more
            can follow) or "length" (no room left).
        top: The likeliest tokens and their logprobs, if asked for.
        stop_string: In the last chunk the stop string that ended the reply, if one did.
    """

    text: str
    token: int
    logprob: float
    finish_reason: FinishReason | None = None
    top: tuple[tuple[int, float], ...] = ()
    stop_string: str | None = None


@dataclass
class Stats:
    """Counts and times of a reply.

    Attributes:
        prompt_tokens: Tokens of the prompt that were read for it.
        tokens: Tokens of the reply.
        prefill_seconds: Time to the first token.
        decode_seconds: Time from the first token to the last.
        cached_tokens: Tokens that were not read, because the session or the prefix cache had them.
        prefill_experts: Experts that the prompt needed, if the model reads them from disk; otherwise None.
            Replies that take turns share these counts.
        decode_experts: The same for the tokens of the reply.

    Examples:
        >>> pyturbo.Stats(prompt_tokens=12, tokens=41, prefill_seconds=0.05, decode_seconds=0.25)
        ... # doctest: +NORMALIZE_WHITESPACE
        Stats(prompt_tokens=12, tokens=41, prefill_seconds=0.05, decode_seconds=0.25,
            prefill_speed=240.0, decode_speed=160.0)
    """

    prompt_tokens: int = 0
    tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    cached_tokens: int = 0
    prefill_experts: ExpertUse | None = None
    decode_experts: ExpertUse | None = None

    @property
    def prefill_speed(self) -> float:
        """Tokens of the prompt per second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_speed(self) -> float:
        """Tokens of the reply per second, without the first, which the prompt gives."""
        return (self.tokens - 1) / self.decode_seconds if self.decode_seconds and self.tokens > 1 else 0.0

    def clear(self) -> None:
        """Reset all counts to zero."""
        self.__init__()  # type: ignore[misc]

    def __repr__(self) -> str:
        cached = f"cached_tokens={self.cached_tokens}, " if self.cached_tokens else ""
        return (
            f"Stats(prompt_tokens={self.prompt_tokens}, {cached}tokens={self.tokens}, "
            f"prefill_seconds={self.prefill_seconds:.3g}, decode_seconds={self.decode_seconds:.3g}, "
            f"prefill_speed={self.prefill_speed:.1f}, decode_speed={self.decode_speed:.1f})"
        )


@dataclass
class Completion:
    """A whole reply. The repr omits per-token lists.

    Attributes:
        text: The reply.
        tokens: Every token of it.
        logprobs: The logprob of each token; see `Chunk`.
        top: The likeliest tokens and their logprobs at each token, if asked for.
        finish_reason: "stop" or "length", see `Chunk`; "cancelled" if another thread ended it.
        stats: Counts and times.
        message: The reply to a chat, taken apart: its content, thoughts and tool calls.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list, repr=False)
    logprobs: list[float] = field(default_factory=list, repr=False)
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list, repr=False)
    finish_reason: FinishReason | Literal["cancelled"] | None = None
    stats: Stats = field(default_factory=Stats)
    message: Message = field(default_factory=Message, repr=False)

    @property
    def reasoning(self) -> str:
        """The thoughts of the reply."""
        return self.message.reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the reply. Some may be incomplete, see `ToolCall`."""
        return self.message.tool_calls

    def add(self, chunk: Chunk) -> None:
        """Append the next chunk of the reply."""
        self.text += chunk.text
        self.tokens.append(chunk.token)
        self.logprobs.append(chunk.logprob)
        if chunk.top:
            self.top.append(chunk.top)
        self.finish_reason = chunk.finish_reason


def is_chat(prompt: Prompt) -> bool:
    """Return whether a prompt is a list of messages."""
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


class ReplyOptions(TypedDict, total=False):
    """Further options of a reply, by name; `Model.stream` and all that take its options take them too.

    How tokens are drawn is stated by `Sampler`, whose defaults are used.

    Attributes:
        min_tokens: The reply is at least this long: until then neither the model nor a stop string ends it.
        ignore_eos: The model never ends the reply.
        logit_bias: What is added to the logits of tokens, by id, or by the text of one token.
        presence_penalty: Is subtracted from the logits of the last 64 tokens.
        frequency_penalty: The same for each time that a token is among them.
        typical_p: Keeps the tokens of this total probability whose information is nearest to the entropy.
        top_n_sigma: Keeps logits that are at most this many standard deviations below the largest.
        xtc_probability: How often likely tokens are dropped, but for the least likely of them.
        xtc_threshold: The probability of a likely token.
        dry_multiplier: What a token loses that would continue a repetition.
        dry_base: By how much that grows with each token of the repetition.
        dry_allowed_length: The length of a repetition that costs the multiplier.
        dry_window: How many of the last tokens are searched for repetitions; 0: all.
        dry_breakers: Texts that end a repetition; by default line breaks, colons, quotes and asterisks.
        schema: A JSON schema that the reply fits, as a mapping or as JSON text.
        regex: A regular expression that all of the reply matches.
        grammar: A Lark grammar of the reply. In a chat, thoughts come before what these three describe.
        reasoning_budget: The most tokens of thoughts in the reply to a chat. Then they are ended, and the
            answer follows; 0: no thoughts.
    """

    min_tokens: int
    ignore_eos: bool
    logit_bias: Mapping[int | str, float] | None
    presence_penalty: float | None
    frequency_penalty: float | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_window: int | None
    dry_breakers: Sequence[str] | None
    schema: Mapping[str, Any] | str | None
    regex: str | None
    grammar: str | None
    reasoning_budget: int | None


#: Options that a `Sampler` takes as they are.
_OF_THE_SAMPLER = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "presence_penalty"),
    *("frequency_penalty", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_window"),
)
_BREAKERS = ("\n", ":", '"', "*")


def _is_time(value: object) -> bool:
    """Return whether it can be compared with a time; what never comes, infinity, can."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


@dataclass(frozen=True)
class Options:
    """How a reply is sampled, and when it ends. None stands for the default of `pyturbo.Sampler`."""

    max_tokens: int = 256
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = ()
    logprobs: int = 0  # how many of the likeliest tokens each chunk lists
    chat: str | None = None  # the prompt, if it is a rendered chat
    ends: float | None = None  # when, as `time.monotonic` has it: what there is by then is the reply
    min_tokens: int = 0
    ignore_eos: bool = False
    logit_bias: Mapping[int | str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_window: int | None = None
    dry_breakers: Sequence[str] | None = None
    schema: Mapping[str, Any] | str | None = None
    regex: str | None = None
    grammar: str | None = None
    reasoning_budget: int | None = None

    def __post_init__(self) -> None:
        index("max_tokens", self.max_tokens, least=1)
        index("logprobs", self.logprobs)
        if index("min_tokens", self.min_tokens) > self.max_tokens:
            raise ArgumentError(
                f"min_tokens: expected at most max_tokens, {self.max_tokens}, got {self.min_tokens}"
            )
        flag("ignore_eos", self.ignore_eos)
        if self.ends is not None and not _is_time(self.ends):
            raise ArgumentError(f"ends: expected a time of time.monotonic, got {shown(self.ends)}")
        if self.reasoning_budget is not None:
            index("reasoning_budget", self.reasoning_budget)
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise ArgumentError(
                f"logit_bias: expected a mapping of tokens to numbers, got {shown(self.logit_bias)}"
            )
        texts = () if self.dry_breakers is None else self.dry_breakers
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not all(isinstance(text, str) and text for text in texts):
            raise ArgumentError(
                f"dry_breakers: expected a list of texts that are not empty, got {shown(texts)}"
            )
        if self.constraint is not None:
            constraint.check(*self.constraint)

    @property
    def constraint(self) -> tuple[str, Any] | None:
        """The name and the value of the constraint, if there is one."""
        return constraint.only_one(self.schema, self.regex, self.grammar)

    @property
    def breakers(self) -> Sequence[str]:
        """Texts that end a repetition."""
        return _BREAKERS if self.dry_breakers is None else self.dry_breakers

    @property
    def needs_tokenizer(self) -> bool:
        """Whether they have texts that only a tokenizer knows as tokens."""
        return bool(
            self.stop_strings()
            or self.constraint
            or self.dry_breakers
            or any(isinstance(token, str) for token in self.logit_bias or ())
        )

    def stop_strings(self) -> StopStrings:
        return StopStrings((self.stop,) if isinstance(self.stop, str) else self.stop or ())

    def with_defaults(self, defaults: SamplingDefaults) -> Options:
        """Fill in the checkpoint's options for those not given, unless `temperature` is given as 0."""
        if isinstance(self.temperature, numbers.Real) and self.temperature == 0:
            return self
        stated = defaults.stated().items()
        return replace(self, **{name: value for name, value in stated if getattr(self, name) is None})  # type: ignore[arg-type]

    def sampler(
        self, logit_bias: Mapping[int, float] | None = None, dry_breakers: Sequence[Sequence[int]] = ()
    ) -> Sampler:
        """Return the sampler, with the texts among the options as tokens."""
        given = {name: getattr(self, name) for name in _OF_THE_SAMPLER if getattr(self, name) is not None}
        return Sampler(**given, logit_bias=logit_bias, dry_breakers=dry_breakers)
