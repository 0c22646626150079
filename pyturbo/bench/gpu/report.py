"""All figures of a device, with what they depend on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

from pyturbo._device import Device
from pyturbo._distribution import NAME
from pyturbo.bench.gpu import kernels, model
from pyturbo.bench.gpu.kernels import KernelRow
from pyturbo.bench.gpu.model import ModelReport, Plan
from pyturbo.bench.gpu.reason import reason
from pyturbo.bench.gpu.torch_peer import torch_peer
from pyturbo.bench.launches import Replay, replays

PARTS = ("kernels", "replay", "model")

_LAUNCHES = 300
_PREPARED = {"kernels": "compiling kernels", "weights": "copying weights"}

Tell = Callable[[str], None]


@dataclass
class Report:
    """The parts that have been measured so far.

    Attributes:
        facts: Device, driver and versions.
        kernels: Operations at the sizes of models.
        replays: Programs of small launches.
        model: Steps of a model with random weights.
        errors: Parts that failed, with the reason.
        seconds: The time that each part took.
    """

    facts: dict[str, str]
    kernels: list[KernelRow] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    model: ModelReport | None = None
    errors: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        rows = [asdict(row) | {"met": row.met} for row in self.kernels]
        return asdict(self) | {"kernels": rows}


def measure(
    device: Device, parts: tuple[str, ...], plan: Plan, *, quick: bool, torch: bool, tell: Tell
) -> Iterator[tuple[str, Report]]:
    """Measure parts of PARTS; yield the name of each and all that is known after it.

    A part that fails leaves a reason, and the others go on. `torch`: compare with it where it is installed.
    """
    wanted = torch and "kernels" in parts and device.memory is not None
    peer, version_or_reason = torch_peer() if wanted else (None, "not asked for")
    report = Report(_facts(device) | {"torch": version_or_reason})
    device.progress = _Watch(tell)
    for part in parts:
        begin = time.perf_counter()
        try:
            if part == "kernels":
                with closing(peer) if peer else nullcontext():
                    report.kernels = kernels.measure(device, quick, peer, tell)
            elif part == "replay":
                tell(f"replays of {_LAUNCHES} launches")
                report.replays = replays(device, _LAUNCHES)
            else:
                report.model = model.measure(device, plan, tell)
        except Exception as error:  # whatever it is, other parts go on
            report.errors[part] = reason(error)
        report.seconds[part] = time.perf_counter() - begin
        yield part, report


class _Watch:
    """Tells how far a device is with kernels that it compiles and weights that it copies, once a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last > 1.0:
            self._last = time.monotonic()
            self._tell(f"{_PREPARED.get(what, what)}: {done / total:.0%}")


def _facts(device: Device) -> dict[str, str]:
    facts = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "pyturbo": version(NAME),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "device": device.name,
    }
    facts |= {f"device {key}": value for key, value in device.properties.items()}
    return facts | {"traits": str(device.traits)}
