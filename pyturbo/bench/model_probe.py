"""Decode some tokens of a packed model with several sizes of the memory for its experts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from pyturbo._device import Device
from pyturbo.bench.text import text_ids
from pyturbo.engine.budget import Budget
from pyturbo.engine.session import Session
from pyturbo.model import Model, load
from pyturbo.streaming import Policy, StreamedExperts
from pyturbo.streaming.simulation import Uses
from pyturbo.streaming.speed import Measured, ModelSpeed, simulated_reads

PROMPT = 128  # tokens that fill the memory for experts
TOKENS = 16  # to decode with each size
#: Memory for experts, as shares of the most that fits, which the prompt has filled: first uses are slow.
_SIZES = (1, 1 / 4, 1 / 16)
_GAIN = 1.05  # reading ahead is used if it is faster by this factor
_SECONDS, _LEAST_TOKENS = 8.0, 4  # after so long, and so many tokens, decoding with one size ends


def probe_model(
    path: str | Path,
    device: Device,
    memory: int | None = None,
    policy: Policy | None = None,
    ids: Sequence[int] | NDArray[np.int64] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelSpeed, str]:
    """Measure how fast a packed model decodes by the memory for its experts; return its fingerprint too.

    It is measured twice, with experts that are read when they are needed, and ahead; the faster way counts.

    `memory` is all that the process may take, None most of what is free. The model reads `ids`, again from
    the beginning where there are too few; without any it reads TEXT, or random tokens if it has no tokenizer.
    `progress` is called with the tokens read so far, and with their number.
    """
    policy = replace(policy or Policy.of(Path(path)), mode="stream")
    found = []
    for number, ahead in enumerate((False, True)):
        with load(path, device, memory=memory, policy=replace(policy, ahead=ahead)) as model:
            found.append(_measure(model, ids, _half(progress, number)))
            fingerprint = model.fingerprint
    (plain, seconds), (ahead_of_use, seconds_ahead) = found
    return (ahead_of_use if seconds > _GAIN * seconds_ahead else plain), fingerprint


def _measure(
    model: Model, ids: Sequence[int] | NDArray[np.int64], progress: Callable[[int, int], None] | None
) -> tuple[ModelSpeed, float]:
    """Return the speed of a model, and the seconds of a typical token of each size together."""
    budget = model.runner.budget
    assert budget is not None
    experts = budget.experts
    assert experts is not None
    run = _Run(model, budget, experts, ids, progress)
    measured = run.measure()
    speed = ModelSpeed(
        device=model.device.name,
        threads=int(model.device.properties.get("threads", 0)),
        ahead=experts.policy.ahead,
        expert_bytes=sum(file.experts * file.stride for file in experts.files),
        own_bytes=run.own_bytes,
        measured=measured,
        reads=simulated_reads(experts.files, run.replays, 1, experts.policy, experts.top_k),
    )
    return (speed.with_guesses() if speed.ahead else speed), run.typical_seconds


def _half(progress: Callable[[int, int], None] | None, number: int) -> Callable[[int, int], None] | None:
    """Return the progress of the first or second half of the work."""
    return None if progress is None else lambda done, total: progress(done + number * total, 2 * total)


class _Run:
    """One conversation that goes on with less or more memory for experts."""

    def __init__(
        self,
        model: Model,
        budget: Budget,
        experts: StreamedExperts,
        ids: Sequence[int] | NDArray[np.int64],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._budget, self._experts, self._progress = budget, experts, progress
        tokens = len(_SIZES) * TOKENS + 1
        self._prompt = max(1, min(PROMPT, model.max_context - tokens))
        self._ids = _text_ids(model, ids, self._prompt + tokens)[: model.max_context]
        self._session: Session = model.session(model.runner.context_for(len(self._ids)))
        self._counts = experts.counts()
        self.replays: list[Uses] = []  # the prompt is the first
        self.own_bytes = 0
        self.typical_seconds = 0.0  # medians, which hold when the machine is busy for a moment

    def measure(self) -> tuple[Measured, ...]:
        """Read the prompt, then decode with each size."""
        self._session.prefill(self._ids[: self._prompt])
        self._note()
        self._step()  # records the program of a token
        budget = self._budget
        total, most = budget.total, self._experts.nbytes
        self.own_bytes = total - budget.fixed - budget.left
        sizes = {max(self._experts.least, int(share * most)): None for share in _SIZES}
        try:
            out = [self._decode(nbytes) for nbytes in sizes]
        finally:
            budget.total = total
        return tuple(one for one in out if one is not None)

    def _decode(self, nbytes: int) -> Measured | None:
        """Decode some tokens with `nbytes` for experts; None if the context has no room left."""
        budget, experts = self._budget, self._experts
        budget.total += nbytes - budget.left
        budget.share()
        before = experts.totals()
        times: list[float] = []
        while len(times) < TOKENS and self._session.position < len(self._ids):
            begin = time.perf_counter()
            self._step()
            times.append(time.perf_counter() - begin)
            if sum(times) > _SECONDS and len(times) >= _LEAST_TOKENS:
                break
        if not times:
            return None
        after, tokens = experts.totals(), len(times)
        self.typical_seconds += median(times)
        waited, busy, read = (
            (after[name] - before[name]) / tokens for name in ("wait_seconds", "read_seconds", "bytes")
        )
        return Measured(experts.nbytes, tokens, sum(times) / tokens, waited, busy, read)

    def _step(self) -> None:
        self._session.step(int(self._ids[self._session.position]))
        self._note()

    def _note(self) -> None:
        """Keep the choices of the last replay."""
        counts = self._experts.counts()
        self.replays.append([now - before for now, before in zip(counts, self._counts)])
        self._counts = counts
        if self._progress is not None:
            self._progress(self._session.position, len(self._ids))


def _text_ids(model: Model, ids: Sequence[int] | NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return `count` tokens to read."""
    if len(ids):
        return np.resize(np.asarray(ids, np.int64), count)
    return text_ids(model.tokenizer if model.has_tokenizer else None, model.network.vocab, count)
