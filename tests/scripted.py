"""A sampler that says what it is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Scripted:
    """Stands in for `pyturbo.Sampler`; it draws these tokens, whatever the logits are."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = iter(tokens)

    def accept(self, tokens: object) -> None:
        pass

    def sample(self, logits: np.ndarray, allowed: np.ndarray | None) -> tuple[int, float]:
        return next(self._tokens), 0.0
