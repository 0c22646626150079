"""The rows of the table: a figure of pyturbo, a peer's figure if there is one, and the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyturbo.bench.peers.rounds import Speeds, ratio

Judged = Literal["ratio", "figure"]  # the figure that the goal applies to

PRECISIONS = ("default", "fast")


@dataclass(frozen=True)
class Row:
    work: str
    threads: int
    precision: str
    figure: float | None  # the best of all rounds: the least of costs; the median for shares
    unit: str  # "tok/s", "share", or of costs "s" and "MB"
    goal: float
    judged: Judged
    peer: str = ""
    peer_figure: float | None = None
    ratio: float | None = None  # the median over the rounds
    note: str = ""
    at_most: bool = False  # whether the goal is the largest figure that meets it, not the smallest
    judgeable: bool = True  # whether nothing has disturbed the measurement

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if it could not be measured."""
        judged = self.ratio if self.judged == "ratio" else self.figure
        if judged is None or not self.judgeable:
            return None
        return judged <= self.goal if self.at_most else judged >= self.goal


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)  # by contender


def beside_peers(
    work: str, threads: int, speeds: Sequence[Speeds], goals: Mapping[str, Mapping[str, float]]
) -> list[Row]:
    """Return a row for each precision and peer; `goals` are ratios, by peer and precision."""
    by_name = {speed.name: speed for speed in speeds}
    rows = []
    for peer, goal in goals.items():
        theirs = by_name[peer]
        for precision in PRECISIONS:
            ours = by_name[name_of(precision)]
            rows.append(
                Row(
                    work,
                    threads,
                    precision,
                    ours.best,
                    "tok/s",
                    goal[precision],
                    "ratio",
                    peer,
                    theirs.best,
                    ratio(ours, theirs),
                    failures(ours, theirs),
                )
            )
    return rows


def alone(work: str, threads: int, speeds: Sequence[Speeds], goal: float) -> list[Row]:
    """Return a row for each precision, without a peer."""
    by_name = {speed.name: speed for speed in speeds}
    return [
        Row(work, threads, precision, ours.best, "tok/s", goal, "figure", note=failures(ours))
        for precision in PRECISIONS
        for ours in [by_name[name_of(precision)]]
    ]


def shares(work: str, threads: int, speeds: Sequence[Speeds], peer: str, goal: float) -> list[Row]:
    """Return a row for each precision, with the median of shares and the peer's."""
    by_name = {speed.name: speed for speed in speeds}
    theirs = by_name[peer]
    return [
        Row(
            work,
            threads,
            precision,
            ours.median,
            "share",
            goal,
            "figure",
            peer,
            theirs.median,
            ratio(ours, theirs),
            failures(ours, theirs),
        )
        for precision in PRECISIONS
        for ours in [by_name[name_of(precision)]]
    ]


def costs(
    work: str, threads: int, unit: str, spent: Sequence[Speeds], peer: str, goals: Mapping[str, float]
) -> list[Row]:
    """Return a row for each precision, of seconds or megabytes; `goals` are the most that may be spent."""
    by_name = {one.name: one for one in spent}
    theirs = by_name[peer]
    return [
        Row(
            work,
            threads,
            precision,
            min(ours.rounds, default=None),
            unit,
            goals[precision],
            "figure",
            peer,
            min(theirs.rounds, default=None),
            ratio(theirs, ours),
            failures(ours, theirs),
            at_most=True,
        )
        for precision in PRECISIONS
        for ours in [by_name[name_of(precision)]]
    ]


def without_ratio(row: Row, why: str) -> Row:
    """Return a row whose figures stand, but that is not compared with a peer or a goal."""
    return replace(row, ratio=None, judgeable=False, note="; ".join(filter(None, (row.note, why))))


def name_of(precision: str) -> str:
    return f"pyturbo {precision}"


def failures(*speeds: Speeds) -> str:
    return "; ".join(f"{speed.name}: {speed.failure}" for speed in speeds if speed.failure)
