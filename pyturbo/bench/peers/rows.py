"""The rows of the table: a figure of pyturbo, a peer's figure if there is one, and the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyturbo.bench.peers.rounds import Speeds, ratio

Judged = Literal["ratio", "figure"]  # the figure that the goal applies to

PRECISIONS = ("default", "fast")


@dataclass(frozen=True)
class Row:
    work: str
    threads: int
    precision: str
    figure: float | None  # the best of all rounds, the median for shares
    unit: str  # "tok/s" or "share"
    goal: float
    judged: Judged
    peer: str = ""
    peer_figure: float | None = None
    ratio: float | None = None  # the median over the rounds
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if it could not be measured."""
        judged = self.ratio if self.judged == "ratio" else self.figure
        return None if judged is None else judged >= self.goal


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


def name_of(precision: str) -> str:
    return f"pyturbo {precision}"


def failures(*speeds: Speeds) -> str:
    return "; ".join(f"{speed.name}: {speed.failure}" for speed in speeds if speed.failure)
