"""Plot quality against memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyturbo.bench.kv.quality import Quality
from pyturbo.bench.picture import Picture

_COMMAND = "bench kv"


def check(path: Path) -> None:
    """Refuse a path that cannot be plotted to, before anything is measured."""
    Picture(_COMMAND, path)


def draw(rows: Sequence[Quality], path: Path) -> None:
    """Draw divergence against bytes per token, as PNG or SVG by the ending of `path`.

    Only an earlier plot of this function is replaced.
    """
    picture = Picture(_COMMAND, path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row.divergence > 0]  # the first is the baseline
    axes.loglog(
        [row.bytes_per_token for row in shown], [row.divergence for row in shown], "o", color="tab:blue"
    )
    for row in shown:
        place = (row.bytes_per_token, row.divergence)
        axes.annotate(
            f"{row.kv}, {row.change:+.2%}", place, xytext=(6, 6), textcoords="offset points", fontsize=9
        )
    axes.margins(x=0.2, y=0.15)
    axes.set_xlabel("bytes of keys and values per token")
    axes.set_ylabel("mean KL divergence, nats")
    axes.set_title("Compressed keys and values: divergence, and change of perplexity", fontsize=11)
    axes.grid(visible=True, which="both", alpha=0.2)
    picture.save(figure)
