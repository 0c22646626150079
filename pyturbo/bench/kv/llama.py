"""llama.cpp's types of cached keys and values, through the C functions of llama-cpp-python."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_int32
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from pyturbo.bench.kv.quality import Start
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


@dataclass(frozen=True)
class Cache:
    """Types of keys and of values."""

    keys: str
    values: str

    @property
    def name(self) -> str:
        """The types, as llama.cpp names them; one where both are the same."""
        return self.keys if self.keys == self.values else f"{self.keys}+{self.values}"

    @property
    def row(self) -> str:
        """The name beside those of other engines."""
        return f"llama.cpp {self.name}"

    @property
    def bits(self) -> float:
        """Bits of one value, scales and offsets included."""
        return (BITS[self.keys] + BITS[self.values]) / 2


#: What the others are compared with.
EXACT = Cache("f32", "f32")

CACHES = (
    Cache("q8_0", "q8_0"),
    Cache("q8_0", "q4_0"),
    Cache("q5_1", "q5_1"),
    Cache("q5_0", "q5_0"),
    Cache("q4_1", "q4_1"),
    Cache("q5_1", "q4_0"),
    Cache("iq4_nl", "iq4_nl"),
    Cache("q4_0", "q4_0"),
)


class Llama:
    """A model of llama.cpp. Use it in a ``with`` statement."""

    def __init__(self, path: Path, threads: int) -> None:
        with suppress(ModuleNotFoundError):
            self._library = importlib.import_module("llama_cpp.llama_cpp")
        if not hasattr(self, "_library"):
            raise StateError("bench kv: --peers needs llama.cpp: pip install llama-cpp-python")
        self._path, self._threads = path, threads
        self._loaded = ExitStack()
        with ExitStack() as loaded:
            self._load(loaded)
            self._loaded = loaded.pop_all()

    def __enter__(self) -> Llama:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loaded.close()

    def _load(self, loaded: ExitStack) -> None:
        library = self._library
        self._quiet = library.llama_log_callback(lambda level, text, data: None)
        library.llama_log_set(self._quiet, None)
        loaded.callback(library.llama_log_set, library.llama_log_callback(), None)
        library.llama_backend_init()
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = library.llama_model_load_from_file(str(self._path).encode(), options)
        if not self._model:
            raise FormatError(f"{self._path}: llama.cpp cannot load it")
        loaded.callback(library.llama_model_free, self._model)
        self._vocab = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))

    @contextmanager
    def opened(self, cache: Cache, tokens: int) -> Iterator[Start]:
        """Yield what reads texts of up to `tokens` tokens with a cache."""
        library = self._library
        settings = library.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = tokens, 1, 1
        settings.n_threads = settings.n_threads_batch = self._threads
        settings.type_k, settings.type_v = (
            getattr(library, f"GGML_TYPE_{name.upper()}") for name in (cache.keys, cache.values)
        )
        settings.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_ENABLED  # quantised values need it
        context = library.llama_init_from_model(self._model, settings)
        if not context:
            raise StateError(f"{self._path}: llama.cpp has no cache of {cache.name} for it")

        def step(token: int) -> NDArray[np.float32]:
            batch = library.llama_batch_get_one((c_int32 * 1)(token), 1)
            if (status := library.llama_decode(context, batch)) != 0:
                raise StateError(f"llama_decode: expected status 0, got {status}")
            logits = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (self._vocab,))
            return np.array(logits, np.float32)

        def start(tokens: int) -> Callable[[int], NDArray[np.float32]]:
            library.llama_memory_clear(library.llama_get_memory(context), True)
            return step

        try:
            yield start
        finally:
            library.llama_free(context)
