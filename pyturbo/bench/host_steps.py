"""The host's own time in the steps of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyturbo.batching import Engine
from pyturbo.model import Model


@dataclass(frozen=True)
class HostStep:
    """Times of a step of several conversations, in microseconds."""

    conversations: int
    host_us: float  # choosing tokens, text, queues: all but the replay
    step_us: float


def host_steps(model: Model, counts: Sequence[int], tokens: int = 64) -> list[HostStep]:
    """Let an engine reply in several conversations at once."""
    steps = []
    for count in counts:
        with Engine(model, slots=count, context=512) as engine:
            _reply(engine, count, tokens)  # records the programs
            before = engine.usage
            _reply(engine, count, tokens)
            after = engine.usage
        number = after.steps - before.steps
        busy = after.busy_seconds - before.busy_seconds
        replays = after.replay_seconds - before.replay_seconds
        steps.append(HostStep(count, 1e6 * (busy - replays) / number, 1e6 * busy / number))
    return steps


def _reply(engine: Engine, count: int, tokens: int) -> None:
    streams = [engine.submit([1 + i], max_tokens=tokens, temperature=0) for i in range(count)]
    for stream in streams:
        stream.result()
