"""mlx-lm on the CPU as a contender."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from pyturbo.bench.peers.child import token_ids


class MlxRunner:
    beside_weights = 0  # unknown

    def __init__(self, model: Any, vocab: int, room: int, load_seconds: float = 0.0) -> None:
        self._model, self._ids, self.load_seconds = model, token_ids(vocab, room), load_seconds
        self._mx = importlib.import_module("mlx.core")
        self._caches = importlib.import_module("mlx_lm.models.cache")

    @property
    def facts(self) -> dict[str, str]:
        return {"version of mlx": self._mx.__version__}

    def prefill(self, first: int, tokens: int) -> float:
        cache = self._caches.make_prompt_cache(self._model)
        begin = time.perf_counter()
        self._read(first, first + tokens, cache)
        return time.perf_counter() - begin

    def decode(self, first: int, context: int, tokens: int) -> float:
        cache = self._caches.make_prompt_cache(self._model)
        self._read(first, first + context, cache)
        begin = time.perf_counter()
        for i in range(first + context, first + context + tokens):
            self._read(i, i + 1, cache)
        return time.perf_counter() - begin

    def _read(self, begin: int, end: int, cache: Any) -> None:
        """Read tokens as mlx_lm reads a prompt: all but the last one without logits."""
        ids = self._mx.array(self._ids[begin:end])[None]
        if end - begin > 1:
            self._model(ids[:, :-1], cache=cache)
            self._mx.eval([layer.state for layer in cache])
        self._mx.eval(self._model(ids[:, -1:], cache=cache))


def load(path: str, threads: int, room: int) -> MlxRunner:
    """Load a model; `threads` is set by the parent through the environment."""
    mx = importlib.import_module("mlx.core")
    mx.set_default_device(mx.cpu)
    begin = time.perf_counter()
    model, config = importlib.import_module("mlx_lm.utils").load_model(Path(path))
    seconds = time.perf_counter() - begin
    runner = MlxRunner(model, config["text_config"]["vocab_size"], room, seconds)
    runner.decode(0, 2, 1)
    return runner
