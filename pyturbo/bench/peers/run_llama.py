"""llama.cpp as a contender, through the C functions of llama-cpp-python, whose Python classes copy logits."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from ctypes import c_int32
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo.bench.peers.child import token_ids, tokens_of
from pyturbo.errors import FormatError, StateError

BATCH = 512  # maximum number of tokens in a batch


class LlamaRunner:
    beside_weights = 0  # unknown

    def __init__(self, library: Any, context: Any, ids: NDArray[np.int32], load_seconds: float = 0.0) -> None:
        self._library, self._context, self._ids = library, context, ids
        self.load_seconds = load_seconds

    @property
    def facts(self) -> dict[str, str]:
        features = self._library.llama_print_system_info().decode()
        return {"version": importlib.import_module("llama_cpp").__version__, "system": features.strip()}

    def prefill(self, first: int, tokens: int) -> float:
        self._forget()
        begin = time.perf_counter()
        self._read(self._ids[first : first + tokens])
        self._finish()
        return time.perf_counter() - begin

    def decode(self, first: int, context: int, tokens: int, conversations: int = 1) -> float:
        self._forget()
        self._read(self._ids[first : first + context])
        self._finish()
        memory = self._library.llama_get_memory(self._context)
        for copy in range(1, conversations):
            self._library.llama_memory_seq_cp(memory, 0, copy, -1, -1)
        rows = tokens_of(self._ids, first + context, tokens, conversations)
        begin = time.perf_counter()
        for i, row in enumerate(rows):
            if conversations == 1:
                self._read(np.array(row, np.int32))
            else:
                self._step(row, context + i)
        self._finish()
        return time.perf_counter() - begin

    def _step(self, tokens: list[int], position: int) -> None:
        """Read a token in each of several sequences, and compute the logits of all."""
        batch = self._library.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.logits[i] = token, position, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, i
            self._check(self._library.llama_decode(self._context, batch))
        finally:
            self._library.llama_batch_free(batch)

    def _forget(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def _read(self, ids: NDArray[np.int32]) -> None:
        """Read a batch that continues the sequence and computes logits of its last token only."""
        for first in range(0, len(ids), BATCH):
            part = ids[first : first + BATCH]
            tokens = (c_int32 * len(part)).from_buffer(part.data)
            batch = self._library.llama_batch_get_one(tokens, len(part))
            self._check(self._library.llama_decode(self._context, batch))

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            raise StateError(f"llama_decode: expected status 0, got {status}")

    def _finish(self) -> None:
        self._library.llama_synchronize(self._context)
        self._library.llama_get_logits_ith(self._context, -1)


def load(
    path: str, threads: int, room: int, ids: Sequence[int] | None = None, conversations: int = 1
) -> LlamaRunner:
    library = importlib.import_module("llama_cpp.llama_cpp")
    library.llama_backend_init()
    begin = time.perf_counter()
    model_options = library.llama_model_default_params()
    model_options.n_gpu_layers = 0
    model = library.llama_model_load_from_file(path.encode(), model_options)
    if not model:
        raise FormatError(f"{path}: llama.cpp cannot load it")
    options = library.llama_context_default_params()
    options.n_ctx = room * conversations
    options.n_seq_max, options.kv_unified = conversations, True
    options.n_batch = options.n_ubatch = BATCH
    options.n_threads = options.n_threads_batch = threads
    context = library.llama_init_from_model(model, options)
    if not context:
        raise StateError(f"{path}: llama.cpp has no context of {room} tokens for it")
    seconds = time.perf_counter() - begin
    vocab = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    runner = LlamaRunner(library, context, token_ids(vocab, room, ids), seconds)
    runner.prefill(0, room - 1)
    runner.decode(0, 1, 1)
    return runner
