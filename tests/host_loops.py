"""Host loops for tests: their launches write a log, which shows the order in which they ran."""

from __future__ import annotations

import pyturbo
from pyturbo import _native_tests

CAPACITY = 61


class Log:
    """Values that launches append in the order in which they run."""

    def __init__(self, device: pyturbo.Device) -> None:
        self.device = device
        self.values, self.length = device.empty(CAPACITY, "uint32"), device.empty(1, "uint32")

    def add(self, program: pyturbo.Program, value: int, label: str = "") -> None:
        append = self.device.kernel("append")
        program.add(append, self.values, self.length, value, CAPACITY, label=label)

    def read(self) -> list[int]:
        length = int(self.length.numpy()[0])
        assert length <= CAPACITY
        return self.values.numpy()[:length].tolist()

    def clear(self) -> None:
        self.length.clear()


class Work:
    """The host's part of a loop: `passes` further passes, then none, and a failure where `fails` says so."""

    def __init__(self, log: Log, name: str = "", calls: list[str] | None = None) -> None:
        self.log, self.name = log, name
        self.calls: list[str] = [] if calls is None else calls
        self.logs: list[list[int]] = []
        self.wanted = log.device.shared(1, "uint32")  # what the launch before the ask stores
        self.missing = log.device.shared(1, "uint32")
        self.passes, self.left, self.knows_last, self.fails = 0, 0, False, ""
        self.loop = _native_tests.CallbackLoop(self, self.missing)

    def miss(self, passes: int, *, knows_last: bool = False, fails: str = "") -> None:
        self.wanted.numpy()[0] = 5
        self.passes, self.knows_last, self.fails = passes, knows_last, fails

    def hit(self) -> None:
        self.wanted.numpy()[0] = 0

    def _called(self, what: str) -> None:
        self.calls.append(f"{self.name}{what}")
        self.logs.append(self.log.read())
        if self.fails == what:
            raise OSError(f"cannot {what}")

    def begin(self) -> None:
        assert self.loop.missing == 5
        self.left = self.passes
        self._called("begin")

    def next(self) -> bool:
        self._called("next")
        if self.left == 0:
            return False
        self.left -= 1
        if self.knows_last and self.left == 0:
            self.missing.numpy()[0] = 0
        return True

    def finish(self) -> None:
        self._called("finish")

    def cancel(self) -> None:
        self._called("cancel")


def record(program: pyturbo.Program, log: Log, work: Work, first: int) -> None:
    """Add a loop whose launches append first, first + 1, ..., first + 3."""
    kernel = log.device.kernel("copy_count")
    log.add(program, first, "before")
    program.add(kernel, work.wanted, work.missing, label="count")
    program.ask(work.loop)
    log.add(program, first + 1, "meanwhile")
    program.begin_passes()
    log.add(program, first + 2, "pass")
    program.end_passes()
    log.add(program, first + 3, "after")
