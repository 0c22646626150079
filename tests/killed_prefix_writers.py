"""Stores that are killed before one of their calls to the system, each before another.

    python tests/killed_prefix_writers.py FOLDER

Each is a fork of this process, which does not touch the device: it keeps a session that was read before.
After each death the next store must find whole files only, whose states are right. Prints what was seen.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from killed_writers import kill_each
from prefix_clients import contents
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.model import load

logging.basicConfig(level=logging.WARNING, format="%(message)s")


def main(folder: Path) -> None:
    model, place = load(folder / "model", "cpu"), folder / "store"
    sessions = []
    for tail in (1, 2):
        session = model.session(64)
        session.prefill([*range(10, 30), tail])
        session.prefill(range(40, 50))
        sessions.append(session)
    found = []

    def work(number: int) -> None:
        store = PrefixStore(model.runner, 1 << 30, place)
        for session in sessions:
            store.keep(session)
        store.flush()

    def check() -> None:
        count = 0
        for session in sessions:
            store, other = PrefixStore(model.runner, 1 << 30, place), model.session(64)
            if store.restore(other, [*session.tokens.tolist(), 3]):
                assert contents(other) == contents(session)
                count += 1
        found.append(count)

    died = kill_each(work, check, step=1)
    names = sorted(path.suffix for path in place.rglob("*") if path.is_file())
    print(json.dumps({"died": died, "found": sorted(set(found)), "last": found[-1], "names": names}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
