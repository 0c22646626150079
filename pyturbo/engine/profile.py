"""The time that replays take, by kernel and by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


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
        return sum(row.seconds for row in self.kernels.values())

    def rows(self) -> list[ProfileRow]:
        """Return the rows, the most expensive kernel first."""
        return sorted(self.kernels.values(), key=lambda row: -row.seconds)

    def table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("kernel")
        for column in ("launches", "ms", "us a launch", "share"):
            table.add_column(column, justify="right")
        total = self.seconds or 1.0
        for row in self.rows():
            each = f"{row.seconds / row.launches * 1e6:.1f}"
            share = f"{row.seconds / total:.1%}"
            table.add_row(row.kernel, str(row.launches), f"{row.seconds * 1e3:.2f}", each, share)
        table.add_section()
        launches = sum(row.launches for row in self.kernels.values())
        table.add_row("all", str(launches), f"{self.seconds * 1e3:.2f}")
        return table

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=100, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
        return re.sub(r" +$", "", capture.get(), flags=re.MULTILINE)
