"""A model on a device."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import models, session_file
from pyturbo._native import Device, device_list
from pyturbo.checkpoint import TokenizerSource, open_checkpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.generation import Chunk, Completion, Options, Prompt, Stats, prompt_ids, start
from pyturbo.graph import CHUNK, KV_TYPES, Graph, Output
from pyturbo.models._decoder import Decoder
from pyturbo.session import Session
from pyturbo.text import Tokenizer

#: Programs kept at once; each has its own scratch memory.
MAX_GRAPHS = 8


def load(
    path: str | PathLike[str],
    device: Device | str | None = None,
    kv: str = "f16",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """The model of a checkpoint: a directory of safetensors, or a GGUF file.

    Weights are mapped where the file allows it; `progress` is called with the bytes read of the others.
    """
    if kv not in KV_TYPES:
        raise ArgumentError(f"load: kv: expected one of {', '.join(KV_TYPES)}, got {kv!r}")
    if not isinstance(device, Device):
        device = Device(device_list()[0] if device is None else device, threads=threads)
    with open_checkpoint(path) as checkpoint:
        network = models.build(checkpoint, progress)
        return Model(checkpoint.config, network, checkpoint.tokenizer, device, kv)


class Model:
    """Weights and recorded programs, shared by any number of sessions."""

    def __init__(
        self, config: dict[str, Any], network: Decoder, tokenizer: TokenizerSource, device: Device, kv: str
    ) -> None:
        self.config, self.network, self.device, self.kv = config, network, device, kv
        self._tokenizer = tokenizer
        self._graphs: dict[tuple[int, int, Output], Graph] = {}  # the one used last at the end
        self._lock = threading.Lock()

    @property
    def max_context(self) -> int:
        """The most tokens a conversation can have."""
        return int(self.network.context)

    def session(self, context: int | None = None) -> Session:
        """A conversation with room for `context` tokens."""
        context = min(4096, self.max_context) if context is None else context
        if not 1 <= context <= self.max_context:
            raise ArgumentError(f"session: context: expected 1 to {self.max_context}, got {context}")
        return Session(self, context)

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer.kind == "gguf" or self._tokenizer.path is not None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Any of these tokens ends a reply."""
        return self.tokenizer.eos_ids if self.has_tokenizer else self._tokenizer.eos_ids

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """From the checkpoint. FormatError where it has none."""
        return Tokenizer(self._tokenizer)

    def stream(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        *,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
    ) -> Iterator[Chunk]:
        """Continues a prompt, one chunk a token, each as soon as it is known.

        The prompt is text, token ids, or the messages of a chat. With a `session` it continues that
        conversation, without one it starts its own. `logprobs` is how many of the likeliest tokens each chunk
        lists; `stats` is filled as the reply goes on. See :class:`pyturbo.Sampler` for the other options.

        Closing the iterator, or an interrupt, ends the reply within one token; the session can go on from
        there.
        """
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        options = Options(
            max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stops, logprobs
        )
        ids = self.prompt_ids(prompt)
        if session is None:
            options.check()
            session = self.session(self.room(len(ids) + max_tokens))
        elif session.model is not self:
            raise ArgumentError("session: expected one of this model, got one of another")
        return start(self, session, ids, options, Stats() if stats is None else stats)

    def generate(self, prompt: Prompt, max_tokens: int = 256, **options: Any) -> Completion:
        """As :meth:`stream`, with the whole reply at once."""
        completion = Completion()
        for chunk in self.stream(prompt, max_tokens, stats=completion.stats, **options):
            completion.add(chunk)
        return completion

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The tokens of text, of token ids, or of a chat through the checkpoint's own template."""
        ids = prompt_ids(self, prompt)
        self.check_ids(ids)
        return ids

    def room(self, tokens: int) -> int:
        """A context for so many tokens, one of few sizes since each has its own programs."""
        return min(max(512, 1 << (tokens - 1).bit_length()), self.max_context)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this model from others: its configuration, and a part of its weights."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        for array in self.network.identity():
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def restore(self, path: str | PathLike[str]) -> Session:
        """The conversation that :meth:`Session.save` wrote, exact to the byte."""
        place = Path(path)
        header, state = session_file.read(place, {"model": self.fingerprint, "kv": self.kv})
        context, position = header.get("context"), header.get("position")
        if not isinstance(context, int) or not isinstance(position, int) or not 0 <= position <= context:
            raise FormatError(f"{place}: expected a position within its context, got {position} of {context}")
        session = self.session(context)
        if state.nbytes != session.nbytes:
            raise FormatError(f"{place}: state: expected {session.nbytes} bytes, got {state.nbytes}")
        pending = header.get("pending")
        session.load(state, position, self.check_ids(pending).tolist() if pending else ())
        return session

    def logits(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """The logits of every position, from a fresh state: float32 [tokens, vocab]."""
        ids = self.check_ids(token_ids)
        return np.concatenate([logits for (logits,) in self.session(len(ids)).advance(ids, "all")])

    def layer_outputs(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """What leaves each layer, from a fresh state: float32 [layers, tokens, hidden].

        To compare with another implementation layer by layer.
        """
        ids = self.check_ids(token_ids)
        return np.concatenate([np.stack(x) for x in self.session(len(ids)).advance(ids, "layers")], axis=1)

    def check_ids(self, token_ids: ArrayLike) -> NDArray[np.int32]:
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ArgumentError(f"token_ids: expected a list of integers, got {ids.dtype} {list(ids.shape)}")
        if ids.min() < 0 or ids.max() >= self.network.vocab:
            wrong = ids[(ids < 0) | (ids >= self.network.vocab)][0]
            raise ArgumentError(f"token_ids: expected 0 to {self.network.vocab - 1}, got {wrong}")
        return ids.astype(np.int32)

    @contextmanager
    def replaying(self, context: int, tokens: int, output: Output) -> Iterator[Graph]:
        """The program for one token or for a chunk of them, recorded once, for one thread at a time."""
        limit = 1 if tokens == 1 and output == "last" else CHUNK
        key = (context, limit, output)
        with self._lock:
            graph = self._graphs.pop(key, None) or Graph(self, context, limit, output)
            while len(self._graphs) >= MAX_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = graph
            yield graph

    @property
    def scratch_bytes(self) -> int:
        """Memory for results between launches, of all programs recorded so far."""
        return sum(graph.scratch_bytes for graph in self._graphs.values())
