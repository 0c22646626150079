from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyturbo._buffer import Buffer

_Logits = npt.NDArray[np.float32] | Buffer
_Mask = npt.NDArray[np.uint32]

class TopLogits:
    def __init__(
        self, values: npt.NDArray[np.float32], tokens: npt.NDArray[np.int32], total: float, vocab: int
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def largest(self) -> float: ...
    def logprobs(self, n: int) -> list[tuple[int, float]] | None: ...

class Sampler:
    def __init__(
        self,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        repetition_window: int = 64,
        *,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        typical_p: float = 1.0,
        top_n_sigma: float = 0.0,
        xtc_probability: float = 0.0,
        xtc_threshold: float = 0.1,
        dry_multiplier: float = 0.0,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_window: int = 64,
        dry_breakers: Sequence[Sequence[int]] = (),
        logit_bias: Mapping[int, float] | None = None,
    ) -> None: ...
    @property
    def seed(self) -> int: ...
    def sample(self, logits: _Logits, allowed: _Mask | None = None) -> tuple[int, float]: ...
    def sample_top(self, top: TopLogits, allowed: _Mask | None = None) -> tuple[int, float] | None: ...
    def upcoming(self, number: int) -> tuple[int, float, float, float, float] | None: ...
    def accept(self, tokens: int | Sequence[int] | npt.NDArray[np.integer[Any]]) -> None: ...

def top_logprobs(logits: _Logits, n: int) -> list[tuple[int, float]]: ...
