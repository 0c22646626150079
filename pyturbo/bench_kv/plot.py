"""A picture of quality against memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyturbo.bench_kv.quality import Quality
from pyturbo.errors import ArgumentError, FileError


def draw(rows: Sequence[Quality], path: Path) -> None:
    """Divergence against bytes per token, as PNG or SVG by the ending of `path`."""
    if path.suffix not in (".png", ".svg"):
        raise ArgumentError(f"bench kv: plot: expected a name that ends in .png or .svg, got {path}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ArgumentError(
            "bench kv: plot: expected matplotlib; pip install 'pyturbo-llm[plot]' gets it"
        ) from None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if row.divergence > 0]  # the first is what others are compared with
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
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error
