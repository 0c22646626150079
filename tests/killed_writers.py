"""Writers that are killed before one of their calls to the system, each before another.

    python tests/killed_writers.py save|convert FOLDER

Each writer is a fork of this process, so that all share one import and one model. After each death the target
must be whole, as it was before or as it was to become, and nothing else may be readable; at the end the
next writer must have removed everything. Prints what was seen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyturbo.checkpoint import open_checkpoint
from pyturbo.convert import convert
from pyturbo.errors import TurboError
from pyturbo.model import load

#: What a writer asks of the system, by the names of Python's functions.
CALLS = (
    *(
        "open",
        "close",
        "write",
        "flush",
        "pwrite",
        "ftruncate",
        "fsync",
        "flock",
        "fchmod",
        "fchown",
        "chmod",
        "mkdir",
    ),
    *("rename", "replace", "unlink", "rmdir", "scandir", "stat", "lstat", "fdopen"),
)


def die_before(number: int) -> None:
    """Kill this process when it makes its call of that number."""
    made = 0

    def watch(frame: Any, event: str, function: Any) -> None:
        nonlocal made
        if event == "c_call" and function.__name__ in CALLS:
            made += 1
            if made > number:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(watch)
    sys.setprofile(watch)


def kill_each(work: Callable[[int], None], check: Callable[[], None], step: int) -> int:
    """Run `work` until it outlives its kill; how many died."""
    died = 0
    while True:
        child = os.fork()
        if child == 0:
            die_before(died * step)
            work(died)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check()
        if status == 0:
            return died
        if os.WTERMSIG(status) != signal.SIGKILL:
            raise AssertionError(f"the writer ended with {status}")
        died += 1


def readable(paths: list[Path], read: Callable[[Path], Any]) -> list[str]:
    """The names of those that can be read."""
    found = []
    for path in paths:
        try:
            read(path)
        except TurboError:
            continue
        found.append(path.name)
    return found


def main(what: str, folder: Path) -> None:
    target = folder / "out"
    seen: set[Any] = set()
    leftovers = 0

    if what == "save":
        model = load(folder / "model", "cpu")
        session = model.session(64)
        session.prefill(range(1, 9))

        def work(number: int) -> None:
            session.notes = {"number": number}
            session.save(target)

        def read(path: Path) -> Any:
            return model.load_session(path).notes["number"]

        work(-1)
    else:

        def work(number: int) -> None:
            convert(folder / "model", target, (4, 8)[number % 2], force=True)

        def read(path: Path) -> Any:
            with open_checkpoint(path) as checkpoint:
                checkpoint.read_all()
                return checkpoint.config["quantization"]["bits"]

        pid = os.fork()  # no thread of a conversion is in this process when it forks
        if pid == 0:
            work(0)
            os._exit(0)
        os.waitpid(pid, 0)

    def check() -> None:
        nonlocal leftovers
        seen.add(read(target))
        others = [path for path in folder.iterdir() if path.name not in ("out", "model")]
        leftovers += len(others)
        if len(others) > 1:
            raise AssertionError(f"one writer left {others}")
        if names := readable(others, read):
            raise AssertionError(f"{names} can be read")

    died = kill_each(work, check, step=1 if what == "save" else 11)
    names = sorted(path.name for path in folder.iterdir())
    print(json.dumps({"died": died, "seen": len(seen), "leftovers": leftovers, "names": names}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
