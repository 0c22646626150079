"""The time that replays take, by kernel, by layer and on a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike

from pyturbo._messages import size
from pyturbo.engine import trace_file
from pyturbo.engine.timeline import ProfileEvent, covered, of_kind
from pyturbo.streaming.memory import ExpertRead
from pyturbo.symbols import Launch, Loop, Timeline


@dataclass
class ProfileRow:
    """All launches of one kernel. A launch that runs in several passes counts as often as it runs."""

    kernel: str
    launches: int = 0
    seconds: float = 0.0


class Profile:
    """Times of launches, added up by kernel, by layer and by part of a layer. Its repr is a table.

    If experts are read from disk, a last line has the reads: their number, bytes and speed, the time in which
    launches waited for them, and the share of the time in which at least one read was under way.

    Examples:
        >>> session = pyturbo.load().session(context=64)
        >>> _ = session.prefill([443, 457, 261])
        >>> profile = session.profile()
        >>> profile.timeline[0].kind, profile.timeline[1].place
        ('replay', 'embed')
        >>> [row.kernel for row in profile.rows() if row.kernel == "route"]
        ['route']
    """

    def __init__(self) -> None:
        self.kernels: dict[str, ProfileRow] = {}
        self.layers: dict[str, float] = {}  # seconds, in the order of the program
        self.parts: dict[str, float] = {}  # seconds by kind: embed, self_attn, linear_attn, mlp, head
        self._events: list[ProfileEvent] = []
        self._origin: float | None = None  # the clock when the first replay began

    def add(
        self,
        tokens: int,
        timed: Timeline,
        launches: Sequence[Launch],
        loops: Sequence[Loop],
        reads: Iterable[ExpertRead],
    ) -> None:
        """Add a replay of a program of these launches and loops, and the experts that were read meanwhile."""
        if self._origin is None:
            self._origin = timed.begin
        zero = self._origin
        noun = "token" if tokens == 1 else "tokens"
        self._events.append(
            ProfileEvent("replay", "", f"{tokens} {noun}", timed.begin - zero, timed.end - zero)
        )
        for launch, begin, end in timed.runs:
            label, kernel = launches[launch].label, launches[launch].kernel
            self._count(label, kernel, end - begin)
            self._events.append(ProfileEvent("launch", label, kernel, begin - zero, end - zero))
        for loop, number, begin, end in timed.calls:
            place, name = launches[loops[loop].ask - 1].label, "wait for reads" if number else "start reads"
            self._events.append(ProfileEvent("wait", place, name, begin - zero, end - zero))
        for read in reads:
            if read.end > zero:  # else it was read ahead, before the first replay
                name, times = f"expert {read.expert}", (read.begin - zero, read.end - zero)
                self._events.append(ProfileEvent("read", read.place, name, *times, read.nbytes, read.ahead))

    def _count(self, label: str, kernel: str, seconds: float) -> None:
        row = self.kernels.setdefault(kernel, ProfileRow(kernel))
        row.launches += 1
        row.seconds += seconds
        names = label.split(".")
        for times, name in ((self.layers, ".".join(names[:2])), (self.parts, names[-1])):
            times[name] = times.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        """The time of all launches."""
        return sum(row.seconds for row in self.kernels.values())

    @property
    def timeline(self) -> list[ProfileEvent]:
        """Replays, launches, waits and reads, in the order in which they began."""
        return sorted(self._events, key=lambda event: (event.begin, event.kind != "replay", event.end))

    @property
    def busy(self) -> float:
        """The share of the time of replays in which at least one expert was being read."""
        replays = of_kind(self._events, "replay")
        total = sum(event.seconds for event in replays)
        return covered(of_kind(self._events, "read"), replays) / total if total else 0.0

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the timeline as JSON that https://ui.perfetto.dev and chrome://tracing open.

        Only a trace of this method or an empty file is replaced.
        """
        trace_file.write(path, self.timeline)

    def rows(self) -> list[ProfileRow]:
        """Return the rows, the most expensive kernel first."""
        return sorted(self.kernels.values(), key=lambda row: -row.seconds)

    def __repr__(self) -> str:
        total = self.seconds or 1.0
        lines = [("kernel", "launches", "ms", "us a launch", "share")]
        for row in self.rows():
            each, share = f"{row.seconds / row.launches * 1e6:.1f}", f"{row.seconds / total:.1%}"
            lines.append((row.kernel, str(row.launches), f"{row.seconds * 1e3:.2f}", each, share))
        launches = sum(row.launches for row in self.kernels.values())
        lines.append(("all", str(launches), f"{self.seconds * 1e3:.2f}", "", ""))
        first, *widths = (max(map(len, column)) for column in zip(*lines))
        texts = ((name.ljust(first), *map(str.rjust, figures, widths)) for name, *figures in lines)
        table = ["  ".join(text).rstrip() for text in texts]
        streams = any(event.kind in {"wait", "read"} for event in self._events)
        return "\n".join([*table, *([self._reads_line()] if streams else [])])

    def _reads_line(self) -> str:
        reads, waits = of_kind(self._events, "read"), of_kind(self._events, "wait")
        total = sum(event.seconds for event in of_kind(self._events, "replay"))
        waited = sum(event.seconds for event in waits)
        nbytes, busy = sum(read.nbytes for read in reads), self.busy
        speed = f" at {size(nbytes / (busy * total))}/s" if busy else ""
        return (
            f"experts: {len(reads)} read, {size(nbytes)}{speed}; waits {waited * 1e3:.2f} of "
            f"{total * 1e3:.2f} ms; a read was under way {busy:.0%} of the time"
        )
