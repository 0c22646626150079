"""Signals that end a long command: between two of its steps, or at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from pyturbo.checkpoint.tensors import Progress


@contextmanager
def exit_when_terminated() -> Iterator[None]:
    """Make SIGTERM an exit, as SIGINT is, so that temporary files are removed. A second one ends at once."""

    def end(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ended_by_signal(show: Progress) -> Iterator[Progress]:
    """Return a progress function that exits after a signal, so that unfinished files are removed.

    Signals take effect between blocks, since an exception while work is handed to threads could lose it.
    """
    asked: list[int] = []

    def progress(done: int, total: int) -> None:
        if asked:
            raise SystemExit(128 + asked[0])
        show(done, total)

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: asked.append(number)) for number in signals]
    try:
        yield progress
    finally:
        for number, handler in zip(signals, before):
            signal.signal(number, handler)
