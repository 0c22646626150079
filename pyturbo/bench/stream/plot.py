"""Plot speed and hits against the share of experts in memory."""

from __future__ import annotations

from collections.abc import Sequence

from pyturbo.bench.picture import Picture
from pyturbo.bench.stream.measure import Point


def draw(points: Sequence[Point], picture: Picture) -> None:
    """Draw tokens per second, and below them hits and how busy the disk was, against the share of slots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    shares = [point.share * 100 for point in points]
    upper.plot(shares, [point.decode for point in points], "o-", color="tab:blue")
    upper.set_ylabel("tokens per second")
    upper.set_ylim(bottom=0)
    upper.set_title("Decode with a part of the experts in memory", fontsize=11)
    lower.plot(shares, [point.hit_rate * 100 for point in points], "o-", label="hits, % of experts needed")
    lower.plot(shares, [point.busy * 100 for point in points], "s--", label="disk busy, % of the time")
    lower.set_ylim(0, 103)
    lower.set_xlabel("experts that fit into memory, % of all")
    lower.legend(fontsize=9)
    for axes in (upper, lower):
        axes.grid(visible=True, alpha=0.2)
    picture.save(figure)
