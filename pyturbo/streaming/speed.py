"""The speed of a model by the memory for its experts: measured at a few sizes, computed for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np

from pyturbo._device import Device
from pyturbo.files.cache import read_cached, write_cached
from pyturbo.streaming.disk import disk_name
from pyturbo.streaming.memory import RecordFile
from pyturbo.streaming.policy import Policy
from pyturbo.streaming.simulation import SlotSimulation, Uses

_VERSION = 1

#: Shares of the experts in memory for which reads are simulated.
SHARES = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)


@dataclass(frozen=True)
class Measured:
    """Decoding with one size of the memory for experts; all but the first two are averages of a token.

    Attributes:
        slot_bytes: Memory for experts.
        tokens: How many tokens were decoded.
        seconds: Time.
        wait_seconds: Of that, the time that nothing was computed because experts were being read.
        read_seconds: Time in which experts were being read.
        read_bytes: Bytes that were read.
    """

    slot_bytes: int
    tokens: int
    seconds: float
    wait_seconds: float
    read_seconds: float
    read_bytes: float

    @property
    def overlap(self) -> float:
        """The share of the time of reads in which something was computed."""
        return max(0.0, 1 - self.wait_seconds / self.read_seconds) if self.read_seconds else 0.0


@dataclass(frozen=True)
class ModelSpeed:
    """What a probe of a model measured on one device.

    Attributes:
        device: The name of the device.
        threads: Its threads, 0 if it has none.
        ahead: Whether it is faster to read experts ahead of the layer that will probably need them.
        expert_bytes: Bytes of all experts.
        own_bytes: Memory for programs and the conversation.
        measured: Decoding with several sizes of the memory for experts.
        reads: Pairs of a share of the experts in memory, and the bytes that a token reads then.
    """

    device: str
    threads: int
    ahead: bool
    expert_bytes: int
    own_bytes: int
    measured: tuple[Measured, ...]
    reads: tuple[tuple[float, float], ...]

    @property
    def compute_seconds(self) -> float:
        """Time of a token that reads nothing."""
        return min(one.seconds - one.wait_seconds for one in self.measured)

    def is_of(self, device: Device) -> bool:
        """Return whether it was measured on such a device, with as many threads."""
        return (self.device, self.threads) == (device.name, int(device.properties.get("threads", 0)))

    def with_guesses(self) -> ModelSpeed:
        """Return this with more reads: those of wrong guesses, which are not simulated, but were measured."""
        expected = sum(self.read_bytes(one.slot_bytes / self.expert_bytes) for one in self.measured)
        more = sum(one.read_bytes for one in self.measured) / expected if expected else 1.0
        return replace(self, reads=tuple((share, more * nbytes) for share, nbytes in self.reads))

    def read_bytes(self, share: float) -> float:
        """Return the bytes that a token reads if that share of the experts is in memory."""
        shares, nbytes = zip(*self.reads)
        return float(np.interp(share, shares, nbytes))

    def seconds(self, read_bytes: float) -> float | None:
        """Return the time of a token that reads so many bytes: linear between measurements.

        None if it is unknown, because no measured token read anything. Where reading more took less time,
        the machine was busy with something else: the mean counts.
        """
        points = sorted((one.read_bytes, one.seconds) for one in self.measured)
        if read_bytes > 0 == points[-1][0]:
            return None
        nbytes = [0.0, *(point[0] for point in points)]
        times = _ascending([self.compute_seconds, *(point[1] for point in points)])
        if read_bytes > nbytes[-1]:
            return times[0] + (times[-1] - times[0]) * read_bytes / nbytes[-1]
        return float(np.interp(read_bytes, nbytes, times))

    def tokens_per_second(self, share: float) -> float | None:
        """Return the speed of decoding if that share of the experts is in memory; None if it is unknown."""
        seconds = self.seconds(self.read_bytes(share))
        return None if seconds is None else 1 / seconds

    @staticmethod
    def of(path: Path, fingerprint: str, expert_bytes: int) -> ModelSpeed | None:
        """Return what was saved for a model, by fingerprint and size, on the disk of `path`."""
        try:
            found = read_cached(_name(path, fingerprint))
            if found.pop("version") != _VERSION:
                return None
            found["measured"] = tuple(Measured(**one) for one in found["measured"])
            found["reads"] = tuple((float(share), float(nbytes)) for share, nbytes in found["reads"])
            speed = ModelSpeed(**found)
            right = speed.expert_bytes == expert_bytes and type(speed.ahead) is bool
            if not right or speed.compute_seconds <= 0:
                return None
            half = speed.tokens_per_second(0.5)
            return speed if half is None or half > 0 else None
        except (OSError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    def save(self, path: Path, fingerprint: str) -> Path | None:
        """Save it; return the file, None if nothing is kept."""
        return write_cached(_name(path, fingerprint), {"version": _VERSION} | asdict(self))


def _ascending(values: Sequence[float]) -> list[float]:
    """Return the ascending values nearest to these: means of neighbours that are in the wrong order."""
    runs: list[list[float]] = []
    for value in values:
        runs.append([value])
        while len(runs) > 1 and mean(runs[-2]) > mean(runs[-1]):
            runs[-2:] = [runs[-2] + runs[-1]]
    return [mean(run) for run in runs for _ in run]


def _name(path: Path, fingerprint: str) -> str:
    return f"model-{fingerprint[:32]}-{disk_name(path)}.json"


def simulated_reads(
    files: Sequence[RecordFile], replays: Sequence[Uses], warm_up: int, policy: Policy, top_k: int
) -> tuple[tuple[float, float], ...]:
    """Return the bytes that a token reads, by share of the experts in memory.

    The first `warm_up` of the replays only fill the slots; each of the others is one token. An expert that
    is used for the first time counts as missing with the probability that it is not in memory, since a longer
    run has used it before. With all experts in memory nothing is read.
    """
    out = []
    for share in SHARES:
        nbytes = 0.0
        for stride in {file.stride for file in files}:
            own = [number for number, file in enumerate(files) if file.stride == stride]
            experts = [files[number].experts for number in own]
            slots = max(1, int(share * sum(experts)))
            simulation = SlotSimulation(experts, slots, policy, top_k)
            for number, uses in enumerate(replays):
                misses = simulation.replay([uses[layer] for layer in own])
                if number >= warm_up:
                    nbytes += stride * (misses.again + misses.first * (1 - share))
        out.append((share, nbytes / (len(replays) - warm_up)))
    return (*out, (1.0, 0.0))
