"""llama.cpp's types of cached keys and values, through the C functions of llama-cpp-python."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from ctypes import c_int32
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo.errors import FormatError, StateError

#: Bits of one value, scales and offsets included, by the name of a type.
BITS = {
    "f32": 32.0,
    "f16": 16.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "iq4_nl": 4.5,
    "q4_0": 4.5,
}

#: Types of keys and of values. The first is what the others are compared with.
PAIRS = (
    ("f32", "f32"),
    ("q8_0", "q8_0"),
    ("q8_0", "q4_0"),
    ("q5_1", "q5_1"),
    ("q5_0", "q5_0"),
    ("q4_1", "q4_1"),
    ("q5_1", "q4_0"),
    ("iq4_nl", "iq4_nl"),
    ("q4_0", "q4_0"),
)


@dataclass(frozen=True)
class Cache:
    """A context whose keys and values have these types."""

    keys: str
    values: str
    _library: Any
    _context: Any
    _vocab: int

    @property
    def name(self) -> str:
        """The types, as llama.cpp names them."""
        return f"llama.cpp {self.keys}" + (f", {self.values}" if self.values != self.keys else "")

    @property
    def bits(self) -> float:
        """Bits of one value, scales and offsets included."""
        return (BITS[self.keys] + BITS[self.values]) / 2

    def start(self, tokens: int) -> Callable[[int], NDArray[np.float32]]:
        """Forget everything; return what reads a token and gives the logits of the next."""
        library, context = self._library, self._context
        library.llama_memory_clear(library.llama_get_memory(context), True)

        def step(token: int) -> NDArray[np.float32]:
            batch = library.llama_batch_get_one((c_int32 * 1)(token), 1)
            if (status := library.llama_decode(context, batch)) != 0:
                raise StateError(f"llama_decode: expected status 0, got {status}")
            logits = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (self._vocab,))
            return np.array(logits, np.float32)

        return step


class Caches:
    """A model of llama.cpp with a context for each of `PAIRS`. Use it in a ``with`` statement."""

    def __init__(self, path: Path, tokens: int, threads: int) -> None:
        with suppress(ModuleNotFoundError):
            self._library = importlib.import_module("llama_cpp.llama_cpp")
        if not hasattr(self, "_library"):
            raise StateError("bench kv: --peers needs llama.cpp: pip install llama-cpp-python")
        self._opened = ExitStack()
        with ExitStack() as opened:
            self.caches = self._open(path, tokens, threads, opened)
            self._opened = opened.pop_all()

    def __enter__(self) -> Caches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def _open(self, path: Path, tokens: int, threads: int, opened: ExitStack) -> list[Cache]:
        library = self._library
        self._quiet = library.llama_log_callback(lambda level, text, data: None)
        library.llama_log_set(self._quiet, None)
        opened.callback(library.llama_log_set, library.llama_log_callback(), None)
        library.llama_backend_init()
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        model = library.llama_model_load_from_file(str(path).encode(), options)
        if not model:
            raise FormatError(f"{path}: llama.cpp cannot load it")
        opened.callback(library.llama_model_free, model)
        vocab = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        caches = []
        for keys, values in PAIRS:
            settings = library.llama_context_default_params()
            settings.n_ctx, settings.n_batch, settings.n_ubatch = tokens, 1, 1
            settings.n_threads = settings.n_threads_batch = threads
            settings.type_k, settings.type_v = (
                getattr(library, f"GGML_TYPE_{name.upper()}") for name in (keys, values)
            )
            settings.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_ENABLED  # quantised values need it
            context = library.llama_init_from_model(model, settings)
            if not context:
                raise StateError(f"{path}: llama.cpp has no cache of {keys} and {values} for it")
            opened.callback(library.llama_free, context)
            caches.append(Cache(keys, values, library, context, vocab))
        return caches
