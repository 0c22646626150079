"""The time that replays take, by kernel and by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class ProfileRow:
    """All launches of one kernel."""

    kernel: str
    launches: int = 0
    seconds: float = 0.0


class Profile:
    """Times of launches, added up by kernel, by layer and by part of a layer. Its repr is a table."""

    def __init__(self) -> None:
        self.kernels: dict[str, ProfileRow] = {}
        self.layers: dict[str, float] = {}  # seconds, in the order of the program
        self.parts: dict[str, float] = {}  # seconds by kind: embed, self_attn, linear_attn, mlp, head

    def add(self, launches: Iterable[tuple[str, str, float]]) -> None:
        """Add launches, given as (label, kernel, seconds)."""
        for label, kernel, seconds in launches:
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
        return "\n".join("  ".join(text).rstrip() for text in texts)
