"""The tokens of a reply: which may come next, and which of them is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import ops
from pyturbo._arguments import index
from pyturbo._sampling import Sampler, TopLogits
from pyturbo.engine.generation import Options
from pyturbo.engine.onward import Rule
from pyturbo.engine.thought_budget import ThoughtBudget
from pyturbo.errors import ArgumentError
from pyturbo.ops.sampling import with_draw
from pyturbo.text import Tokenizer
from pyturbo.text.constraint import Constraint

Mask = NDArray[np.uint32]
Drawn = tuple[int, float]  # a token and its logprob


class Chooser:
    """Draws the tokens of one reply. Any loop can drive it: `read` the prompt, then `sample` and `accept`.

    A constraint says what may come next. Ends of the reply are forbidden for the first `min_tokens` tokens,
    with `ignore_eos` all the time, but not where a constraint allows nothing else. When a budget of thoughts
    is used up, the next tokens are those that end them. One thread at a time.

    Attributes:
        ended: Whether a constraint allows no further token: the reply is complete.
    """

    def __init__(
        self,
        sampler: Sampler,
        ends: Mask,
        *,
        constraint: Constraint | None = None,
        thoughts: ThoughtBudget | None = None,
        min_tokens: int = 0,
        ignore_eos: bool = False,
    ) -> None:
        """Take a sampler, and the mask of the tokens that end a reply."""
        self._sampler, self._constraint, self._thoughts = sampler, constraint, thoughts
        self._others = ~ends
        self._left = min_tokens  # tokens until the reply may end
        self._ignores = ignore_eos
        self._mask: Mask | None = None  # of the next token, once it is known
        self._forced: list[int] = []  # the next tokens, whatever the model says
        self._rules: dict[tuple[int, ...], Rule] = {}  # by the tokens that they forbid
        self.ended = False
        self._end_thoughts(thoughts is not None and thoughts.spent)

    def read(self, tokens: ArrayLike) -> None:
        """Count the tokens before the reply for penalties."""
        self._sampler.accept(tokens)  # type: ignore[arg-type]

    def sample(self, logits: NDArray[np.float32]) -> tuple[int, float]:
        """Return the next token and its logprob, from all logits."""
        drawn = self._drawn(lambda mask: self._sampler.sample(logits, mask))
        assert drawn is not None
        return drawn

    def sample_top(self, top: TopLogits) -> tuple[int, float] | None:
        """Return the same from the largest logits; None if they do not suffice."""
        return self._drawn(lambda mask: self._sampler.sample_top(top, mask))

    def _drawn(self, draw: Callable[[Mask | None], Drawn | None]) -> Drawn | None:
        """Draw a token. If it begins a character for which thoughts have no room, they end instead."""
        mask = self._allowed()
        drawn = draw(mask)
        while drawn is not None and not self._has_room(drawn[0]):
            self._end_thoughts(True)
            if self._forced:
                return draw(self._allowed())
            others = None if mask is None else mask & ~_mask_of(drawn[:1], 32 * len(mask))
            if others is None or not others.any():
                return drawn
            mask = others  # within a character: another token completes it
            drawn = draw(mask)
        return drawn

    def _has_room(self, token: int) -> bool:
        return bool(self._forced) or self._thoughts is None or self._thoughts.has_room(token)

    def _end_thoughts(self, now: bool) -> None:
        if now and not self._forced and self._thoughts is not None:
            accepts = self._constraint.accepts if self._constraint is not None else None
            self._forced = self._thoughts.closing(accepts)

    def accept(self, token: int) -> None:
        """Go on after a token that was drawn and does not end the reply."""
        self._sampler.accept(token)
        self._left = max(0, self._left - 1)
        self._mask = None
        self._forced = self._forced[1:]
        if self._constraint is not None:
            self._constraint.accept(token)
            self.ended = self._constraint.ended
        if self._thoughts is not None:
            self._thoughts.accept(token)
            self._end_thoughts(self._thoughts.spent)

    def rule(self, number: int, known: int) -> Rule | None:
        """Return by which rule of `ops.choose_token` one of the next tokens is drawn, counted from 1.

        None: what is drawn there depends on more than that many of the largest logits.
        """
        draw = self._sampler.upcoming(number)
        if draw is None or self._constraint is not None or self._thoughts is not None:
            return None
        ends = self._ends if self._ignores or self._left >= number else ()
        if len(ends) > ops.MAX_FORBIDDEN or draw[0] + len(ends) > known:
            return None
        rule = self._rules.get(ends)
        if rule is None:
            rule = self._rules[ends] = ops.choice_rule(*draw, forbidden=ends)
        return with_draw(rule, draw[-1])

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        bits = np.unpackbits((~self._others).view(np.uint8), bitorder="little")
        return tuple(map(int, np.flatnonzero(bits)))

    def _allowed(self) -> Mask | None:
        """Return the mask of the next token; None if all are allowed."""
        if self._forced:
            return _mask_of(self._forced[:1], 32 * len(self._others))
        endless = self._ignores or self._left > 0
        if self._constraint is None:
            return self._others if endless else None
        if self._mask is None:
            self._mask = self._constraint.mask()
            others = self._mask & self._others if endless else self._mask
            self._mask = others if others.any() else self._mask
        return self._mask


def make_chooser(
    options: Options, *, tokenizer: Tokenizer | None, eos_ids: Sequence[int], vocab: int
) -> Chooser:
    """Return the chooser of a reply with `vocab` logits. Wrong options are an error here, not later."""
    bias = {_token(key, tokenizer, vocab): value for key, value in (options.logit_bias or {}).items()}
    breakers: list[tuple[int, ...]] = []
    if options.dry_multiplier and tokenizer is not None:
        breakers = tokenizer.breakers(options.breakers)
    sampler = options.sampler(bias, breakers)
    constraint = None
    if options.constraint is not None and tokenizer is not None:
        constraint = tokenizer.constraint(**dict([options.constraint]), vocab=vocab, chat=options.chat)
    thoughts = None
    if options.reasoning_budget is not None and options.chat is not None and tokenizer is not None:
        thoughts = ThoughtBudget(tokenizer, options.chat, options.reasoning_budget)
    return Chooser(
        sampler,
        _mask_of(eos_ids, vocab),
        constraint=constraint,
        thoughts=thoughts,
        min_tokens=options.min_tokens,
        ignore_eos=options.ignore_eos,
    )


def _mask_of(tokens: Sequence[int], vocab: int) -> Mask:
    """Return the mask of those tokens that are below `vocab`."""
    mask = np.zeros(-(-vocab // 32), np.uint32)
    for token in {token for token in tokens if token < vocab}:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def _token(key: int | str, tokenizer: Tokenizer | None, vocab: int) -> int:
    """Return the token that a key of `logit_bias` names: its id or its text."""
    if isinstance(key, str) and tokenizer is not None:
        try:
            return tokenizer.token(key)
        except ArgumentError as error:
            raise ArgumentError(f"logit_bias: {str(error).removeprefix('token: text: ')}") from None
    token = index("logit_bias: token", key)
    if token >= vocab:
        raise ArgumentError(f"logit_bias: token: expected an id below {vocab}, got {token}")
    return token
