"""The rules of the Trace Event Format that our traces use, as a check."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

#: Entries that an event of each phase has, with their types.
ENTRIES: dict[str, dict[str, Any]] = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float)},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "pid": int, "ts": (int, float), "args": dict},
}


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, which is required to be valid, nested without partial overlap."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert trace.keys() >= {"traceEvents", "displayTimeUnit"}
    events: list[dict[str, Any]] = trace["traceEvents"]
    rows = defaultdict(list)
    names = set()
    for event in events:
        for entry, kind in ENTRIES[event["ph"]].items():
            assert isinstance(event[entry], kind), (entry, event)
        assert event.get("ts", 0) >= 0
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            names.add((event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else 0))
            assert isinstance(event["args"]["name"], str)
        elif event["ph"] == "C":
            assert all(isinstance(value, (int, float)) and value >= 0 for value in event["args"].values())
        else:
            assert event["dur"] >= 0
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for (process, row), spans in rows.items():
        assert {("process_name", process, 0), ("thread_name", process, row)} <= names
        open_until: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 0.0015:  # both are rounded to nanoseconds
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.0015, (process, row, begin, end)
            open_until.append(end)
    return events
