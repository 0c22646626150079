"""Timelines as files in the Trace Event Format, which Perfetto and chrome://tracing open.

A file is one JSON object. Its first entry names pyturbo, so that a later trace may replace it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pyturbo.engine.timeline import ProfileEvent, lanes, of_kind, rates
from pyturbo.files.replace import new_file, target_of
from pyturbo.files.target import require_replaceable

_START = b'{"otherData": {"writer": "pyturbo"}'

_REPLAYS, _DISK = 1, 2  # processes
_ROWS = {"replay": "replays", "launch": "launches", "wait": "waits for experts"}


def check(path: str | PathLike[str]) -> None:
    """Refuse a path that a trace cannot be written to, before anything is measured."""
    _require_replaceable(target_of("trace", path))


def write(path: str | PathLike[str], events: Sequence[ProfileEvent]) -> None:
    """Write a trace. There is always a complete file under that name, or none.

    Only a trace of this function or an empty file is replaced.
    """
    target = target_of("trace", path)
    with (
        new_file(target, _require_replaceable) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        file.write(_START + b', "displayTimeUnit": "ms", "traceEvents": [\n')
        between = b""
        for event in trace_events(events):
            file.write(between + json.dumps(event).encode())
            between = b",\n"
        file.write(b"\n]}\n")


def trace_events(events: Sequence[ProfileEvent]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a trace: names of rows, events in rows without overlap, the speed of reads."""
    origin = min((event.begin for event in events), default=0.0)
    yield _named("process_name", _REPLAYS, 0, "replays")
    row = 0
    for kind, name in _ROWS.items():
        for number, lane in enumerate(lanes(of_kind(events, kind))):
            row += 1
            yield _named("thread_name", _REPLAYS, row, name if number == 0 else f"{name} {number + 1}")
            yield from _complete(lane, _REPLAYS, row, origin)
    reads = of_kind(events, "read")
    if not reads:
        return
    yield _named("process_name", _DISK, 0, "disk")
    for row, lane in enumerate(lanes(reads), 1):
        yield _named("thread_name", _DISK, row, f"reads {row}")
        yield from _complete(lane, _DISK, row, origin)
    for moment, rate in rates(reads):
        yield {
            "ph": "C",
            "pid": _DISK,
            "tid": 0,
            "name": "speed of reads",
            "ts": _microseconds(moment - origin),
            "args": {"MB/s": round(rate / 1e6, 3)},
        }


def _named(what: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": row, "ts": 0, "name": what, "args": {"name": name}}


def _complete(
    lane: Iterable[ProfileEvent], process: int, row: int, origin: float
) -> Iterator[dict[str, Any]]:
    for event in lane:
        begin, end = (_microseconds(moment - origin) for moment in (event.begin, event.end))
        name = f"{event.place} {event.name}" if event.kind == "read" else event.name
        about: dict[str, Any] = {"place": event.place} if event.place else {}
        if event.kind == "read":
            about |= {"bytes": event.nbytes, "ahead": event.ahead}
        yield {
            "ph": "X",
            "pid": process,
            "tid": row,
            "name": name + (" (ahead)" if event.ahead else ""),
            "cat": event.kind,
            "ts": begin,
            "dur": round(end - begin, 3),
            "args": about,
        }


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _require_replaceable(path: Path) -> None:
    require_replaceable(path, lambda head: head.startswith(_START), "a trace of pyturbo")
