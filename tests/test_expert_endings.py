"""The expert store: cancelled replays, closed stores, processes that end, and the memory they have."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from expert_files import Replays
from processes import require_clean, run_script
from pyturbo import _native_tests
from pyturbo.errors import StateError

pytestmark = pytest.mark.usefixtures("plain_reads")


def test_cancel_while_reads_are_under_way(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=4, threads=2)
    loop = replays.loops[0]
    with replays.store:
        _native_tests.fail_reads("slow", 300)
        replays.find_slots(0, range(7))
        _native_tests.begin(loop)
        _native_tests.cancel(loop)
        reads = _native_tests.plain_reads()
        assert reads <= 2  # those that had begun
        replays.check_tables()
        replays.replay([6, 0], [1])
        assert len(replays.layer(0, [6, 0])) == 1


def test_cancelled_choices_are_not_needed_again(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=4)
    with replays.store as store:
        replays.find_slots(1, [3])
        for loop in replays.loops:
            _native_tests.cancel(loop)
        replays.replay([2], [0])
        assert (1, 3) not in replays.cached()
        assert store.stats()[1]["requests"] == 1


def threads_and_files() -> tuple[int, int]:
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")
def test_close_leaves_no_thread_and_no_file(tmp_path: Path) -> None:
    before = threads_and_files()
    replays = Replays(tmp_path, threads=5)
    replays.replay([1, 2], [3])
    assert threads_and_files() == (before[0] + 5, before[1] + 2)
    replays.store.close()
    assert threads_and_files() == before
    replays.store.close()
    assert replays.store.closed
    with pytest.raises(StateError, match="expert store: it is closed"):
        replays.replay([0])
    assert replays.replay([1]) == [[{1}]]  # it has a slot, and is not asked for
    assert repr(replays.store) == "ExpertStore(2 layers, closed)"
    assert replays.store.stats()[0]["misses"] == 2


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")
def test_a_dropped_store_leaves_no_thread_and_no_file(tmp_path: Path) -> None:
    before = threads_and_files()
    replays = Replays(tmp_path, threads=5)
    replays.find_slots(0, range(7))
    _native_tests.begin(replays.loops[0])
    del replays
    assert threads_and_files() == before


def test_close_while_a_replay_waits(tmp_path: Path) -> None:
    replays = Replays(tmp_path, threads=1)
    _native_tests.fail_reads("slow", 200)
    replays.find_slots(0, range(7))
    _native_tests.begin(replays.loops[0])
    closers = [threading.Timer(0.05, replays.store.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    with pytest.raises(StateError, match="expert store: it is closed"):
        assert all(_native_tests.next_pass(replays.loops[0]) for _ in range(8))
    for closer in closers:
        closer.join()
    _native_tests.cancel(replays.loops[0])
    _native_tests.finish(replays.loops[0])
    replays.check_tables()


def test_close_ends_the_pauses_of_repeated_reads(tmp_path: Path) -> None:
    replays = Replays(tmp_path, threads=1)
    _native_tests.fail_reads("error", errno.EIO)
    replays.find_slots(0, [1, 2, 3])
    _native_tests.begin(replays.loops[0])
    time.sleep(0.02)
    replays.store.close()
    assert _native_tests.plain_reads() < 4  # a record is given up after the fourth


def test_stats_while_a_replay_waits(tmp_path: Path) -> None:
    replays = Replays(tmp_path, threads=1)
    with replays.store as store:
        _native_tests.fail_reads("slow", 500, count=1)
        replays.find_slots(0, [1])
        _native_tests.begin(replays.loops[0])
        waiting = threading.Thread(target=_native_tests.next_pass, args=replays.loops[:1])
        waiting.start()
        assert store.stats()[0]["misses"] == 1
        assert waiting.is_alive()
        waiting.join()


START = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from expert_files import Replays
from pyturbo import _native_tests
from pyturbo.errors import StateError

replays = Replays(Path("."), slots=3, threads=2)
replays.replay([1, 2], [3])
begun = threading.Event()
def background():
    while True:
        replays.replay([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4])
        begun.set()
"""

CHILD = """
threading.Thread(target=background, daemon=True).start()
begun.wait()
for i in range(8):
    time.sleep(0.002 * i)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        assert replays.store.closed
        for use in (replays.store.stats, lambda: _native_tests.begin(replays.loops[0]),
                    lambda: _native_tests.next_pass(replays.loops[0])):
            try:
                use()
            except StateError as error:
                assert "made before fork(): load the model in the child process" in str(error), error
            else:
                os._exit(1)
        _native_tests.cancel(replays.loops[0])
        _native_tests.finish(replays.loops[0])
        replays.store.close()
        Path("child").mkdir(exist_ok=True)
        own = Replays(Path("child"), slots=2, threads=2)
        own.replay([1, 2, 3], [4])
        own.store.close()
        del replays, own
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""

ENDINGS = {
    "a child of fork": CHILD,
    "a store in a global": "",
    "reads under way": "replays.find_slots(0, [4, 5, 6])\n_native_tests.begin(replays.loops[0])",
    "slow reads under way": """
_native_tests.fail_reads("slow", 100)
replays.find_slots(0, [4, 5, 6])
_native_tests.begin(replays.loops[0])
""",
    "reads that are repeated": """
_native_tests.fail_reads("error", 5)
replays.find_slots(0, [4, 5, 6])
_native_tests.begin(replays.loops[0])
time.sleep(0.1)
""",
    "a daemon thread replays": "threading.Thread(target=background, daemon=True).start()\nbegun.wait()",
    "a child that ends normally": """
threading.Thread(target=background, daemon=True).start()
begun.wait()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_in_order(tmp_path: Path, ending: str) -> None:
    require_clean(run_script(START + ENDINGS[ending], tmp_path))


BUDGET = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from expert_files import STRIDE, Replays

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

replays = Replays(Path("."), (2000,), slots=100, threads=4)
replays.replay(range(10))
before = resident()
replays.replay(range(1000, 2000))
replays.replay(range(1000))
grown = resident() - before
assert grown < 100 * STRIDE + 3_000_000, grown
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").is_file() or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the size is what Linux measures, without the memory of a sanitizer",
)
def test_memory_stays_within_the_slab(tmp_path: Path) -> None:
    require_clean(run_script(BUDGET, tmp_path))
