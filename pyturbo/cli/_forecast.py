"""The table of memory and expected speed that ``info`` and ``probe`` print."""

from __future__ import annotations

from pyturbo.cli._output import print_table, size, table
from pyturbo.forecast import Forecast

_NOTES = {
    "probe": "Expected from what `pyturbo probe` measured on {device}, for long replies.",
    "disk": "An estimate: the disk alone, as if nothing was computed and all experts were equally likely.\n"
    "`pyturbo probe MODEL` measures the model itself.",
    None: "`pyturbo probe MODEL` measures the speed on this machine.",
}


def speed(tokens: float | None) -> str:
    """Return tokens per second with three digits; empty if unknown."""
    return "" if tokens is None else f"{tokens:.0f}" if tokens >= 100 else f"{tokens:.3g}"


def show_forecast(forecast: Forecast) -> None:
    """Print what is expected of a packed model with several amounts of memory."""
    columns = ["memory", "experts in memory", "read per token", "tokens/s"]
    if forecast.basis is None:
        columns.pop()
    if forecast.basis != "probe":
        columns[2] += ", estimate"
    if forecast.basis == "disk":
        columns[3] += ", estimate"
    rows = table(*columns, right=tuple(columns))
    for one in forecast.outlooks:
        if one.share is None or one.read_bytes is None:
            cells = [size(one.memory), "does not fit"]
        else:
            cells = [size(one.memory), f"{one.share:.1%}", size(one.read_bytes), speed(one.tokens_per_second)]
        rows.add_row(*cells[: len(columns)])
    print_table(rows)
    print(_NOTES[forecast.basis].format(device=forecast.device))
