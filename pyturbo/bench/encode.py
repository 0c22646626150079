"""Measure how long the host needs to hand over a decode step of many launches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyturbo._device import Device
from pyturbo.bench.gpu.model import QUICK, replay_times
from pyturbo.bench.gpu.random_model import random_runner
from pyturbo.bench.stream.synthetic import SHAPE

#: As many layers as Qwen3.6-35B-A3B has. The sizes of matrices do not change the work of the host.
_SHAPE = replace(QUICK.shape, layers=SHAPE.layers)
_STEPS = 200


@dataclass(frozen=True)
class Encoded:
    """The time of a step until the host has handed it over; see `StepRow.host_us`.

    Attributes:
        device: The name of the device.
        launches: Of the step.
        waits: Launches that wait for others.
        us: Microseconds, the median of many steps.
        least_us: Those of the fastest step, which other load on the machine affects least.
        goal: Microseconds to stay below.
    """

    device: str
    launches: int
    waits: int
    us: float
    least_us: float
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
    return Encoded(name, len(listing), waits, times.host_us, times.least_host_us)
