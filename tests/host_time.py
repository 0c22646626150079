"""Prints what the host does around the replay of a decode step, in microseconds: python tests/host_time.py.

Not part of the tests. A tiny model is used, since its size does not change this work: the time of a chunk of
a greedy reply, without that of the native call that replays the program. Its parts are timed by themselves.
The least of several hundred steps is shown, which other load on the machine affects least, and the median.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyturbo
from pyturbo.engine.graph import Graph
from pyturbo.engine.session import Session
from text.tiny_chat import write_model

STEPS = 400
clock = time.perf_counter_ns


class Timed:
    """Replaces a method by one that adds up the time of its calls."""

    def __init__(self, owner: type, name: str) -> None:
        self.spent = 0
        method = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            begin = clock()
            try:
                return method(*args, **options)
            finally:
                self.spent += clock() - begin

        setattr(owner, name, timed)

    def take(self) -> int:
        spent, self.spent = self.spent, 0
        return spent


def main() -> None:
    replay, advance, sample = (
        Timed(Graph, "run"),
        Timed(Session, "_advance_all"),
        Timed(Session, "_sample"),
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder) / "model", context=STEPS + 64)
        with pyturbo.load(path, "cpu", threads=1) as model:
            reply = model.stream([5, 9, 3], STEPS, temperature=0)
            next(reply)
            for timer in (replay, advance, sample):
                timer.take()
            while not reply.ended:
                begin = clock()
                next(reply)
                whole, run = clock() - begin, replay.take()
                rows.append((whole - run, advance.take() - run, sample.take()))
    names = ("a chunk without its replay", "  of it in the session", "  of it in the sampler (all logits)")
    for name, column in zip(names, np.array(rows).T / 1000):
        print(f"{name:36} {column.min():7.1f} us, median {np.median(column):7.1f} us")


if __name__ == "__main__":
    main()
