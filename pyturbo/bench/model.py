"""Measure a model on this machine: loading, prefill, decode, and the parts of a decode step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyturbo._machine import peak_memory
from pyturbo.bench.memory import read_bandwidth
from pyturbo.checkpoint import open_checkpoint
from pyturbo.describe import survey
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError
from pyturbo.layers.decoder import Decoder
from pyturbo.model import Model

#: Shows progress in a `with` block: its title, the last position, and a function for the current one.
Watch = Callable[[str, int, Callable[[], int]], AbstractContextManager[object]]

#: Parts of every network, by their labels in programs.
_PARTS = {"embed": "embedding", "mlp": "mlp or experts", "head": "output head"}

_LENGTHS = (32, 128, 512)  # of prompts
_TOKENS = 32  # to decode
_READ_BYTES = 1 << 28  # to measure the bandwidth of memory with: more than caches hold


@dataclass(frozen=True)
class Times:
    """Speeds in tokens per second; `kinds` is the seconds of one decode step by part of the network."""

    model: str
    device: str
    load_seconds: float
    prefill: dict[int, float]  # by length of the prompt
    decode: float
    kinds: dict[str, float]
    bytes_per_token: float
    bandwidth: float  # bytes per second that the CPU reads
    peak_memory: int

    @property
    def bandwidth_share(self) -> float:
        return self.bytes_per_token * self.decode / self.bandwidth


def measure(
    name: str,
    load: Callable[[], Model],
    lengths: Sequence[int] | None = None,
    tokens: int | None = None,
    threads: int | None = None,
    watch: Watch = lambda title, total, position: nullcontext(),
) -> Times:
    """Measure the checkpoint `name`, which `load` loads.

    Prompts of `lengths` tokens are read, then `tokens` tokens are decoded; the defaults fit the context of
    the model. The bandwidth of memory is that of `threads`.
    """
    with open_checkpoint(name) as checkpoint:
        found = survey(checkpoint)
    lengths, tokens = _extent(lengths, tokens, found.network.context)
    begin = time.perf_counter()
    model = load()
    load_seconds = time.perf_counter() - begin
    context = model.runner.context_for(max(lengths) + tokens)
    ids = np.random.default_rng(0).integers(0, model.network.vocab, max(lengths))
    _warm_up(model, context, ids, watch)
    prefill = {}
    for length in lengths:
        session = model.session(context)
        prefill[length] = length / _prefill_seconds(session, ids[:length], watch)
    decode = tokens / _decode_seconds(session, tokens, watch)
    return Times(
        model=name,
        device=model.device.name,
        load_seconds=load_seconds,
        prefill=prefill,
        decode=decode,
        kinds=_kinds(model.network, session.profile().parts),
        bytes_per_token=found.bytes_per_token,
        peak_memory=peak_memory(),  # before the memory that read_bandwidth takes
        bandwidth=read_bandwidth(threads, nbytes=_READ_BYTES),
    )


def _kinds(network: Decoder, parts: dict[str, float]) -> dict[str, float]:
    """Return seconds by kind, given seconds by label. Mixers that share a label are one entry."""
    kinds: dict[str, list[str]] = {label: [kind] for label, kind in _PARTS.items()}
    for layer in network.layers:
        same = kinds.setdefault(layer.mixer.name.rpartition(".")[2], [])
        if layer.mixer.kind not in same:
            same.append(layer.mixer.kind)
    return {", ".join(kinds[label]): seconds for label, seconds in parts.items()}


def _extent(lengths: Sequence[int] | None, tokens: int | None, most: int) -> tuple[Sequence[int], int]:
    """Return the lengths of prompts and the number of tokens to decode; defaults fit a context of `most`."""
    longest = 1 if lengths is None else max(lengths)
    decoded = max(1, min(_TOKENS, most // 2, most - longest)) if tokens is None else tokens
    room = most - decoded
    read = sorted({min(length, room) for length in _LENGTHS}) if lengths is None else lengths
    if max(read) > room or min(read) < 1:
        raise ArgumentError(
            f"bench model: expected at most {most} tokens in all, the model's context, "
            f"got {longest} to read and {decoded} to write"
        )
    return read, decoded


def _warm_up(model: Model, context: int, ids: NDArray[np.int64], watch: Watch) -> None:
    """Record the programs and bring the weights into memory before anything is timed."""
    session = model.session(context)
    _prefill_seconds(session, ids, watch)
    session.step(int(ids[0]))


def _prefill_seconds(session: Session, ids: NDArray[np.int64], watch: Watch) -> float:
    with watch(f"reading {len(ids)} tokens", len(ids), lambda: session.position):
        begin = time.perf_counter()
        session.prefill(ids)
        return time.perf_counter() - begin


def _decode_seconds(session: Session, tokens: int, watch: Watch) -> float:
    """Return the seconds of `tokens` steps, each with the likeliest token."""
    first = session.position
    with watch(f"writing {tokens} tokens", tokens, lambda: session.position - first):
        begin = time.perf_counter()
        for _ in range(tokens):
            session.step(int(session.logits.argmax()))
        return time.perf_counter() - begin
