"""The memory of a machine and of a process, as files of the system state it, and without these files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyturbo import _machine

GB = 10**9


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of those of the system; nothing is in it."""
    monkeypatch.setattr(_machine, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(_machine, "_PROCESS", tmp_path / "self")
    monkeypatch.setattr(_machine, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(_machine, "machine_memory", lambda: 64 * GB)
    return tmp_path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_a_system_without_these_files(files: Path) -> None:
    assert _machine.available_memory() == 64 * GB
    assert _machine.resident_memory() is None
    assert _machine.used_memory() == _machine.peak_memory() > 0


def test_what_the_system_says(files: Path) -> None:
    write(files / "meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB")
    write(files / "self/statm", "900 7 3 1 0 2 0")
    assert _machine.available_memory() == 5000 * 1024
    assert _machine.used_memory() == _machine.resident_memory() == 7 * _machine.os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_limit_it(files: Path, version: int) -> None:
    """The smallest room of a group and of those around it counts; files that can be dropped are free."""
    names = [("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"), None]
    limit, used, cached = names[version - 1] or ("memory.max", "memory.current", "inactive_file")
    root = files / "cgroup" / ("memory" if version == 1 else "")
    write(files / "self/cgroup", "3:cpu:/other\n2:memory,pids:/a/b" if version == 1 else "0::/a/b")
    write(root / "a/b" / limit, 9 * GB)
    write(root / "a/b" / used, 4 * GB)
    assert _machine.available_memory() == 5 * GB
    write(root / "a" / limit, 6 * GB)
    write(root / "a" / used, 4 * GB)
    write(root / "a/memory.stat", f"rss 5\n{cached} {GB}\n")
    assert _machine.available_memory() == 3 * GB
    write(root / "a" / limit, "max")
    assert _machine.available_memory() == 5 * GB
    write(root / "a/b" / limit, GB)  # lower than what is used
    assert _machine.available_memory() == 0


@pytest.mark.parametrize("text", ["", "nonsense", "1", "0::/gone/elsewhere", "1:memory:/gone"])
def test_groups_that_are_not_there(files: Path, text: str) -> None:
    write(files / "self/cgroup", text)
    assert _machine.available_memory() == 64 * GB
