"""Measure how long the host needs to hand over a decode step of many launches."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from pyturbo._device import Device
from pyturbo.bench.gpu.model import QUICK, Plan, replay_times
from pyturbo.bench.gpu.random_model import BlankWeights, random_runner, runner_of
from pyturbo.bench.peers import random_moe
from pyturbo.symbols import Part

#: As many layers as Qwen3.6-35B-A3B has, with small matrices: their sizes change the work of the host only in
#: the number of command buffers.
_SHAPE = replace(QUICK.shape, layers=Plan.shape.layers)
_STEPS = 200
_POSITION = 1024


@dataclass(frozen=True)
class Encoded:
    """The time of a step until the host has handed it over; see `StepRow.host_us`. It was prepared before.

    Attributes:
        device: The name of the device.
        launches: Of the step.
        waits: Launches that wait for others.
        us: Microseconds, the median of many steps.
        least_us: Those of the fastest step, which other load on the machine affects least.
        ahead_us: Microseconds for preparing the next step, which a GPU does not wait for; the median.
        command_buffers: That such a step of the real sizes is divided into, on Metal.
        longest_ms: The estimate for the longest of them on an M1, milliseconds.
        goal: Microseconds to stay below.
    """

    device: str
    launches: int
    waits: int
    us: float
    least_us: float
    ahead_us: float
    command_buffers: int | None = None
    longest_ms: float | None = None
    goal: float = 150.0


def encode(device: Device) -> Encoded:
    """Time steps of a model with 40 layers and random weights."""
    runner = random_runner(device, _SHAPE, "f16", tell=lambda _: None)
    try:
        context = runner.context_for(QUICK.prompt)
        with runner.program(context, 1, "last") as (_, graph):
            listing = graph.program.listing()
            blocks = [runner.allocate(runner.layout(context))]
            times = replay_times(device, graph.program, blocks, QUICK.prompt, _STEPS)
    finally:
        runner.close()
    waits = sum(launch.waits for launch in listing)
    name = device.properties.get("name", device.name)
    encoded = Encoded(name, len(listing), waits, times.host_us, times.least_host_us, times.ahead_us)
    if device.traits.host_memory != "pages":
        return encoded
    parts = step_parts(device)
    longest = max(part.seconds for part in parts)
    return replace(encoded, command_buffers=len(parts), longest_ms=1e3 * longest)


def step_parts(device: Device) -> list[Part]:
    """Return the command buffers of a step with the sizes of Qwen3.6-35B-A3B. Nothing runs."""
    runner = runner_of(device, random_moe.config(Plan.shape), BlankWeights(), "f16")
    with closing(runner):
        context = runner.context_for(_POSITION + 1)
        with runner.program(context, 1, "last") as (_, graph):
            return graph.parts(1, runner.allocate(runner.layout(context)), _POSITION)
