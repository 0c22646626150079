"""What a model does on this machine: loading, reading, writing, and where the time of a token goes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyturbo.checkpoint import open_checkpoint
from pyturbo.cli import _output
from pyturbo.cli._bandwidth import read_bandwidth
from pyturbo.cli._model import load_model, peak_memory
from pyturbo.cli._usage import one_model
from pyturbo.describe import survey
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError
from pyturbo.model import Model, default_model

if TYPE_CHECKING:
    from rich.table import Table

#: Parts of a layer by how the program labels them.
_KINDS = {
    "embed": "embedding",
    "linear_attn": "delta net",
    "self_attn": "attention",
    "mlp": "mlp or experts",
    "head": "output head",
}


_LENGTHS = (32, 128, 512)  # of prompts
_TOKENS = 32  # to write


@dataclass
class Times:
    """Speeds are tokens a second; kinds are seconds of one token, by part of the network."""

    model: str
    device: str
    load_seconds: float
    prefill: dict[int, float]
    decode: float
    kinds: dict[str, float]
    bytes_per_token: float
    bandwidth: float  # bytes a second that the machine reads
    peak_memory: int

    @property
    def bandwidth_share(self) -> float:
        return self.bytes_per_token * self.decode / self.bandwidth


def run(arguments: argparse.Namespace) -> None:
    times = measure(arguments, one_model(arguments.named, arguments.model) or str(default_model()))
    _output.show(arguments, asdict(times) | {"bandwidth_share": times.bandwidth_share}, lambda: _table(times))


def measure(arguments: argparse.Namespace, name: str) -> Times:
    with open_checkpoint(name) as checkpoint:
        found = survey(checkpoint)
    lengths, tokens = _extent(arguments.lengths, arguments.tokens, found.network.context)
    begin = time.perf_counter()
    model = load_model(arguments, name)
    load_seconds = time.perf_counter() - begin
    context = model.room(max(lengths) + tokens)
    ids = np.random.default_rng(0).integers(0, model.network.vocab, max(lengths))
    _warm(model, context, ids)
    prefill = {}
    for length in lengths:
        session = model.session(context)
        prefill[length] = length / _reading(session, ids[:length], f"reading {length} tokens")
    decode = tokens / _writing(session, tokens)
    parts = session.profile().parts
    return Times(
        model=name,
        device=model.device.name,
        load_seconds=load_seconds,
        prefill=prefill,
        decode=decode,
        kinds={_KINDS.get(name, name): seconds for name, seconds in parts.items()},
        bytes_per_token=found.bytes_per_token,
        bandwidth=read_bandwidth(arguments.threads),
        peak_memory=peak_memory(),
    )


def _extent(lengths: Sequence[int] | None, tokens: int | None, most: int) -> tuple[Sequence[int], int]:
    """Lengths of prompts and a count of tokens to write, by default what fits into a context of `most`."""
    longest = 1 if lengths is None else max(lengths)
    written = max(1, min(_TOKENS, most // 2, most - longest)) if tokens is None else tokens
    room = most - written
    read = sorted({min(length, room) for length in _LENGTHS}) if lengths is None else lengths
    if max(read) > room or min(read) < 1:
        raise ArgumentError(
            f"bench: expected at most {most} tokens in all, the model's context, got {longest} and {written}"
        )
    return read, written


def _warm(model: Model, context: int, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Programs are recorded, and weights come into memory, before anything is timed."""
    session = model.session(context)
    _reading(session, ids, "warming up")
    session.step(int(ids[0]))


def _reading(session: Session, ids: np.ndarray[tuple[int], np.dtype[np.int64]], what: str) -> float:
    """Seconds."""
    bar = _output.Waiting(what, len(ids), lambda: session.position)
    try:
        begin = time.perf_counter()
        session.prefill(ids)
        return time.perf_counter() - begin
    finally:
        bar.close()


def _writing(session: Session, tokens: int) -> float:
    """Seconds for so many steps, each with the likeliest token."""
    first = session.position
    bar = _output.Waiting(f"writing {tokens} tokens", tokens, lambda: session.position - first)
    try:
        begin = time.perf_counter()
        for _ in range(tokens):
            session.step(int(session.logits.argmax()))
        return time.perf_counter() - begin
    finally:
        bar.close()


def _table(times: Times) -> Table:
    out = _output.table("what", "", right=("",))
    out.add_row("load", f"{times.load_seconds:.2f} s")
    for length, speed in times.prefill.items():
        out.add_row(f"read {length} tokens", f"{speed:.1f} tok/s")
    out.add_row("write", f"{times.decode:.1f} tok/s")
    total = sum(times.kinds.values()) or 1.0
    for name, seconds in times.kinds.items():
        out.add_row(f"  of a token: {name}", f"{seconds * 1e3:.2f} ms  {seconds / total:4.0%}")
    out.add_row("weights read for a token", _output.size(times.bytes_per_token))
    out.add_row("memory bandwidth of this machine", f"{_output.size(times.bandwidth)}/s")
    out.add_row("share of it reached in writing", f"{times.bandwidth_share:.1%}")
    out.add_row("memory at most", _output.size(times.peak_memory))
    return out
