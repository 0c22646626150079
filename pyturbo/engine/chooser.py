"""The tokens of a reply: which may come next, and which of them is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._arguments import index
from pyturbo._sampling import Sampler, TopLogits
from pyturbo.engine.generation import Options
from pyturbo.errors import ArgumentError
from pyturbo.text import Tokenizer
from pyturbo.text.constraint import Constraint

Mask = NDArray[np.uint32]


class Chooser:
    """Draws the tokens of one reply. Any loop can drive it: `read` the prompt, then `sample` and `accept`.

    A constraint says what may come next. Ends of the reply are forbidden for the first `min_tokens` tokens,
    with `ignore_eos` all the time, but not where a constraint allows nothing else. One thread at a time.

    Attributes:
        ended: Whether a constraint allows no further token: the reply is complete.
    """

    def __init__(
        self,
        sampler: Sampler,
        ends: Mask,
        *,
        constraint: Constraint | None = None,
        min_tokens: int = 0,
        ignore_eos: bool = False,
    ) -> None:
        """Take a sampler, and the mask of the tokens that end a reply."""
        self._sampler, self._constraint = sampler, constraint
        self._others = ~ends
        self._left = min_tokens  # tokens until the reply may end
        self._ignores = ignore_eos
        self._mask: Mask | None = None  # of the next token, once it is known
        self.ended = False

    def read(self, tokens: ArrayLike) -> None:
        """Count the tokens before the reply for penalties."""
        self._sampler.accept(tokens)  # type: ignore[arg-type]

    def sample(self, logits: NDArray[np.float32]) -> tuple[int, float]:
        """Return the next token and its logprob, from all logits."""
        return self._sampler.sample(logits, self._allowed())

    def sample_top(self, top: TopLogits) -> tuple[int, float] | None:
        """Return the same from the largest logits; None if they do not suffice."""
        return self._sampler.sample_top(top, self._allowed())

    def accept(self, token: int) -> None:
        """Go on after a token that was drawn and does not end the reply."""
        self._sampler.accept(token)
        self._left -= self._left > 0
        self._mask = None
        if self._constraint is not None:
            self._constraint.accept(token)
            self.ended = self._constraint.ended

    def _allowed(self) -> Mask | None:
        """Return the mask of the next token; None if all are allowed."""
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
        constraint = tokenizer.constraint(**dict([options.constraint]), vocab=vocab)
    ends = np.zeros(-(-vocab // 32), np.uint32)
    for token in {token for token in eos_ids if token < vocab}:
        ends[token // 32] |= np.uint32(1 << token % 32)
    return Chooser(
        sampler, ends, constraint=constraint, min_tokens=options.min_tokens, ignore_eos=options.ignore_eos
    )


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
