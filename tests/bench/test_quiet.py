"""``pyturbo bench peers --quiet-check``: what other processes use, and what becomes of ratios then."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyturbo.bench.peers import quiet, works
from pyturbo.bench.peers.plan import Plan
from pyturbo.bench.peers.quiet import Others, Watch
from pyturbo.bench.peers.rows import Report, Row
from pyturbo.cli import main
from pyturbo.errors import StateError

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this system has no /proc")

LOUD = Others(1.25, {"cc1plus (process 7)": 0.9, "make (process 5)": 0.02, "sh (process 9)": 0.0})


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is busy, and no child of this one."""
    script = "import os, sys\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
    yield pid
    os.kill(pid, 9)


def test_a_busy_stranger_is_named(stranger: int) -> None:
    watch = Watch()
    time.sleep(0.5)
    others = watch.others()
    (name,) = [name for name in others.processes if name.endswith(f"(process {stranger})")]
    assert others.processes[name] > 0.02
    assert others.cores > 0.02


def test_own_children_do_not_count() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        watch = Watch()
        time.sleep(0.3)
        assert not any(f"(process {child.pid})" in name for name in watch.others().processes)
    finally:
        child.kill()
        child.wait()


def test_a_name_may_be_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux cuts names to 15 bytes, also within a letter."""
    monkeypatch.setattr(quiet, "_PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(b"7 (" + "aaaaaaaaaaaaaa\u00e9".encode()[:15] + b") S 1 7")
    ((pid, (name, *rest)),) = quiet._stats()
    assert (pid, name[:14], rest) == (7, "a" * 14, ["S", "1", "7"])


def test_times_are_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ten seconds: 5 of a stranger, 2 of this process, 3 of its child, and 1 that another machine took."""
    tick = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(quiet, "_PROC", tmp_path)
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    own = iter([1.0, 3.0])
    monkeypatch.setattr(quiet, "_own", lambda: next(own))

    def state(stranger: float, child: float, busy: float, stolen: float) -> None:
        for pid, name, parent, used in ((50, "a (b) c", 1, stranger), (60, "child", os.getpid(), child)):
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            fields = f"S {parent} 0 0 0 0 0 0 0 0 0 {round(used * tick)} 0 0 0"
            (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {fields}")
        (tmp_path / "stat").write_text(
            f"cpu {round(busy * tick)} 0 0 9 9 0 0 {round(stolen * tick)} 0 0\ncpu0 1\n"
        )

    state(1, 0, 10, 0)
    watch = Watch()
    state(6, 3, 20, 1)
    others = watch.others()
    assert others.cores == pytest.approx(0.6)
    assert others.processes == {"a (b) c (process 50)": pytest.approx(0.5)}
    assert not others.quiet


def test_words() -> None:
    assert str(LOUD) == (
        f"other processes use 1.2 of {os.cpu_count()} cores: cc1plus (process 7) 90%, make (process 5) 2%"
    )
    assert Others(0.05, {}).quiet
    assert str(Others(0.05, {})).endswith("cores")


def test_ratios_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a work nothing is measured; afterwards figures stay and ratios go."""
    found = [LOUD]
    monkeypatch.setattr(quiet, "_SAMPLE", 0.0)
    monkeypatch.setattr(Watch, "others", lambda self: found.pop(0))
    row = Row("decode", 2, "default", 30.0, "tok/s", 1.5, "ratio", "llama.cpp", 20.0, 1.5)
    alone = Row("decode small", 2, "default", 2000.0, "tok/s", 1000.0, "figure")

    def work(plan: Plan, report: Report, tell: object) -> None:
        report.rows += [row, alone]

    monkeypatch.setattr(works, "WORKS", {"decode": work, "prefill": work})
    assert main(["bench", "peers", "--quiet-check", "--only", "decode"]) == 1
    assert "other processes use 1.2 of" in capsys.readouterr().err
    assert found == []

    found += [Others(0.0, {}), LOUD, Others(0.0, {}), Others(0.01, {})]
    first, second, *rest = works.measure(
        Plan(), ["decode", "prefill"], lambda text: None, quiet_check=True
    ).rows
    assert (first.ratio, first.met, first.figure, first.note) == (None, None, 30.0, str(LOUD))
    assert (second.met, second.figure) == (None, 2000.0)
    assert rest == [row, alone]
    assert (row.met, alone.met) == (True, True)
    assert works.measure(Plan(), ["decode"], lambda text: None).rows == [row, alone]


def test_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_PROC", tmp_path / "none")
    with pytest.raises(StateError, match="--quiet-check: needs .*, which this system does not have"):
        Watch()
