from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyturbo._native import Buffer

_Logits = npt.NDArray[np.float32] | Buffer

class TopLogits:
    def __init__(
        self, values: npt.NDArray[np.float32], tokens: npt.NDArray[np.int32], total: float, vocab: int
    ) -> None: ...
    def __len__(self) -> int: ...
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
    ) -> None: ...
    @property
    def seed(self) -> int: ...
    def sample(self, logits: _Logits) -> tuple[int, float]: ...
    def sample_top(self, top: TopLogits) -> tuple[int, float] | None: ...
    def accept(self, tokens: int | Sequence[int] | npt.NDArray[np.integer[Any]]) -> None: ...

def top_logprobs(logits: _Logits, n: int) -> list[tuple[int, float]]: ...
