"""What happened while replays ran: launches, waits of the host and reads of experts, on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple


class ProfileEvent(NamedTuple):
    """Something that happened between two moments, in seconds since the first replay of its profile began.

    Attributes:
        kind: "replay" for a whole replay; "launch" for one execution of a launch; "wait" for time in which
            launches stood still, because the host started or awaited reads; "read" for an expert that was
            read from disk.
        place: The part of the model, such as "layers.3.mlp"; of a read the layer, "layers.3", of a replay "".
        name: The kernel, the expert, or what the host did.
        begin: May be negative for a read that was begun ahead, by an earlier replay.
        end: Not before `begin`.
        nbytes: Of a read.
        ahead: Whether it is a read of an expert that the layer before expected.
    """

    kind: Literal["replay", "launch", "wait", "read"]
    place: str
    name: str
    begin: float
    end: float
    nbytes: int = 0
    ahead: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


def of_kind(events: Iterable[ProfileEvent], kind: str) -> list[ProfileEvent]:
    """Return the events of one kind."""
    return [event for event in events if event.kind == kind]


def covered(events: Iterable[ProfileEvent], within: Iterable[ProfileEvent]) -> float:
    """Return the seconds in which an event was under way, of those that the disjoint events `within` take."""
    spans, wholes = merged(events), merged(within)
    total, i, j = 0.0, 0, 0
    while i < len(spans) and j < len(wholes):
        (begin, end), (first, last) = spans[i], wholes[j]
        total += max(0.0, min(end, last) - max(begin, first))
        if end < last:
            i += 1
        else:
            j += 1
    return total


def merged(events: Iterable[ProfileEvent]) -> list[tuple[float, float]]:
    """Return the times in which at least one event was under way, in order and apart from each other."""
    spans: list[tuple[float, float]] = []
    for event in sorted(events, key=lambda event: event.begin):
        if spans and event.begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], event.end)
        else:
            spans.append((event.begin, event.end))
    return spans


def lanes(events: Iterable[ProfileEvent]) -> list[list[ProfileEvent]]:
    """Divide events into as few lanes as possible such that those of one lane do not overlap."""
    out: list[list[ProfileEvent]] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # end of the last event, and its lane
    for event in sorted(events, key=lambda event: (event.begin, event.end)):
        while busy and busy[0][0] <= event.begin:
            heappush(free, heappop(busy)[1])
        if not free:
            out.append([])
            free.append(len(out) - 1)
        lane = heappop(free)
        out[lane].append(event)
        heappush(busy, (event.end, lane))
    return out


def rates(reads: Sequence[ProfileEvent]) -> list[tuple[float, float]]:
    """Return moments, and the bytes per second of all reads from each of them on.

    The bytes of a read count as spread evenly over its time.
    """
    changes: dict[float, float] = {}
    for read in reads:
        if read.seconds > 0:
            rate = read.nbytes / read.seconds
            changes[read.begin] = changes.get(read.begin, 0.0) + rate
            changes[read.end] = changes.get(read.end, 0.0) - rate
    rate, out = 0.0, []
    for moment in sorted(changes):
        rate += changes[moment]
        out.append((moment, max(0.0, rate)))
    return out
