"""Runs of pack that are killed, each at another point, and the runs after them.

    python tests/pack/killed_pack.py FOLDER POINTS

FOLDER/model is packed. Half of the runs die before a random call to the system, half after a random time;
some are killed twice before one may finish, and sometimes the run after a kill has other options. After each
kill there must be no pack, or a whole one; the last run must give a whole one and leave nothing else.
Prints what was seen.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from killed_writers import CALLS, die_before
from pyturbo.checkpoint.manifest import Manifest
from pyturbo.pack import pack, verify


def child(work: Callable[[], None], seconds: float | None = None) -> bool:
    """Run `work` in a process of its own; kill it after some time. Returns whether it was killed."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if status and os.WTERMSIG(status) != signal.SIGKILL:
        raise AssertionError(f"the run ended with {status}")
    return status != 0


def count_calls(work: Callable[[], None], folder: Path) -> int:
    """Return how many calls to the system a whole run makes."""

    def counted() -> None:
        made = 0

        def watch(frame: object, event: str, function: object) -> None:
            nonlocal made
            made += event == "c_call" and getattr(function, "__name__", "") in CALLS

        import threading

        threading.setprofile(watch)
        sys.setprofile(watch)
        work()
        sys.setprofile(None)
        (folder / "calls").write_text(str(made))

    child(counted)
    calls = int((folder / "calls").read_text())
    (folder / "calls").unlink()
    return calls


def main(folder: Path, points: int) -> None:
    source, target = folder / "model", folder / "out"
    rng = random.Random(points)

    def run(bits: int | None = None) -> None:
        pack(source, target, expert_bits=bits)

    begin = time.perf_counter()
    child(run)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    calls = count_calls(run, folder)
    shutil.rmtree(target)
    seen = {"killed": 0, "outlived": 0, "resumed": 0, "restarted": 0, "complete": 0, "other options": 0}
    first = True  # this run is killed late, and the next one certainly resumes it
    while seen["killed"] < points:
        for _ in range(1 if first else rng.choice((1, 1, 2))):
            if first or rng.random() < 0.5:
                number = calls * 3 // 4 if first else rng.randrange(calls)

                def dying(number: int = number) -> None:
                    die_before(number)
                    run()

                killed = child(dying)
            else:
                killed = child(run, rng.uniform(0, 1.2 * seconds))
            seen["killed" if killed else "outlived"] += 1
            if target.exists():
                if not verify(target, source).ok:
                    raise AssertionError("a wrong pack was taken as valid")
                seen["complete"] += 1
                break
        if target.exists():
            shutil.rmtree(target)
        left = [path for path in folder.iterdir() if path.name != "model"]
        if len(left) > 1:
            raise AssertionError(f"more than one run left {left}")
        bits = None if first else rng.choice((None, None, None, 3))
        first = False
        marks = {path.stat().st_ino for one in left for path in one.rglob("*.bin")}
        child(lambda bits=bits: run(bits))
        kept = marks & {path.stat().st_ino for path in target.rglob("*.bin")}
        if bits is not None:
            seen["other options"] += 1
            assert Manifest.read(target).source["expert_bits"] == 3
        seen["resumed" if kept and bits is None else "restarted"] += 1
        if not verify(target, source).ok:
            raise AssertionError("the last run left a wrong pack")
        shutil.rmtree(target)
        if names := [path.name for path in folder.iterdir() if path.name != "model"]:
            raise AssertionError(f"the last run left {names}")
    print(json.dumps(seen | {"calls": calls, "names": sorted(path.name for path in folder.iterdir())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
