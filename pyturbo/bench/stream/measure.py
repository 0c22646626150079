"""Measure a packed model with memory for a part of its experts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._device import Device
from pyturbo._machine import used_memory
from pyturbo.bench.stream.hits import ExpertMap
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.engine.profile import Profile
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session
from pyturbo.errors import FormatError
from pyturbo.placement import streamed_runner
from pyturbo.streaming import Policy, StreamedExperts

#: Called before each measurement with what is measured.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """Speeds with slots for a share of the experts; all figures of decode are those of one token."""

    share: float
    slot_bytes: int
    prompt: int  # tokens
    prefill: float  # tokens per second
    prefill_bytes: int
    prefill_reads: float  # records read for each expert that the prompt needed
    prefill_busy: float  # share of the time in which a read was under way
    decode: float  # tokens per second
    hit_rate: float
    token_bytes: float
    wait_seconds: float
    busy: float
    read_rate: float  # bytes per second while reads were under way
    memory: int  # of the process at the end


@dataclass
class Details:
    """What `measure` notes besides, in the share that it measures.

    Attributes:
        traced: Tokens to time launch by launch, after those that are measured.
        profile: Of these.
        use: The experts that the measured tokens chose.
    """

    traced: int = 0
    profile: Profile | None = None
    use: ExpertMap | None = None


def needed_tokens(prompt: int, tokens: int, traced: int = 0) -> int:
    """Return how many tokens a measurement takes: half of `tokens` more let the slots settle."""
    return prompt + tokens // 2 + tokens + traced


def measure(
    path: Path,
    share: float,
    ids: NDArray[np.int64],
    prompt: int,
    tokens: int,
    policy: Policy,
    device: Device,
    tell: Tell = lambda what: None,
    details: Details | None = None,
) -> Point:
    """Read `prompt` of the tokens `ids`, let the slots settle, then step through `tokens` of them.

    Fills in `details`.
    """
    with open_checkpoint(path) as checkpoint:
        if not isinstance(checkpoint, PackedCheckpoint):
            raise FormatError(f"{path}: expected a packed model, which `pyturbo pack` writes")
        total = sum(file.experts * file.stride for file in checkpoint.record_files())
        runner = streamed_runner(checkpoint, device, int(total * share), policy)
    experts = runner.experts
    assert experts is not None
    try:
        return _measured(runner, experts, share, ids, prompt, tokens, tell, details or Details())
    finally:
        runner.close()


def _measured(
    runner: Runner,
    experts: StreamedExperts,
    share: float,
    ids: NDArray[np.int64],
    prompt: int,
    tokens: int,
    tell: Tell,
    details: Details,
) -> Point:
    session = Session(runner, runner.context_for(needed_tokens(prompt, tokens, details.traced)))
    tell(f"{share:.0%} of the experts: reading {prompt} tokens")
    before, records = experts.counts(), _records_read(experts)
    read, seconds = _timed(experts, lambda: session.prefill(ids[:prompt]))
    records = _records_read(experts) - records
    needed = sum(int((now != then).sum()) for now, then in zip(experts.counts(), before))
    first = needed_tokens(prompt, tokens) - tokens
    tell(f"{share:.0%} of the experts: writing {tokens} tokens")
    _steps(session, ids[prompt:first])
    before = experts.counts()
    experts.trace(True)
    wrote, step_seconds = _timed(experts, lambda: _steps(session, ids[first : first + tokens]))
    reads, layers = experts.trace(False), [file.place for file in experts.files]
    details.use = ExpertMap.of(layers, before, experts.counts(), reads)
    memory = used_memory()
    if details.traced:
        session.timings = details.profile = Profile()
        _steps(session, ids[first + tokens : first + tokens + details.traced])
    return Point(
        share=share,
        slot_bytes=experts.nbytes,
        prompt=prompt,
        prefill=prompt / seconds,
        prefill_bytes=read["bytes"],
        prefill_reads=records / max(1, needed),
        prefill_busy=read["read_seconds"] / seconds,
        decode=tokens / step_seconds,
        hit_rate=wrote["hits"] / max(1, wrote["requests"]),
        token_bytes=wrote["bytes"] / tokens,
        wait_seconds=wrote["wait_seconds"] / tokens,
        busy=wrote["read_seconds"] / step_seconds,
        read_rate=wrote["bytes"] / wrote["read_seconds"] if wrote["read_seconds"] else 0.0,
        memory=memory,
    )


def _records_read(experts: StreamedExperts) -> int:
    return sum(int(layer["bytes"]) // file.stride for layer, file in zip(experts.stats(), experts.files))


def _steps(session: Session, ids: Sequence[int] | NDArray[np.int64]) -> None:
    for token in ids:
        session.step(int(token))


def _timed(experts: StreamedExperts, work: Callable[[], Any]) -> tuple[dict[str, Any], float]:
    """Return what the counters of all layers grew by, and the seconds that `work` took."""
    before, begin = experts.totals(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    return {name: value - before[name] for name, value in experts.totals().items()}, seconds
