"""Reads that are measured, and the policy that follows from them.

Speeds are those of a busy machine: only what must hold at any speed is asserted.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from expert_files import STRIDE, record, write_files
from pyturbo import _native_tests
from pyturbo._experts import time_reads
from pyturbo.errors import ArgumentError, FileError, FormatError
from pyturbo.files import cache
from pyturbo.streaming import Policy, RecordFile
from pyturbo.streaming.disk import DiskSpeed, ReadSpeed, disk_name
from pyturbo.streaming.disk_probe import probe_reads, temporary_records


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def saved_name(path: Path, record: int = 4096) -> str:
    return f"{disk_name(path)}-records-{record:x}.json"


def slab(slots: int) -> pyturbo.Buffer:
    return pyturbo.Device("cpu", threads=1).empty(slots * STRIDE, "uint8")


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("split", [0, 4096])
def test_bursts_read_the_records(tmp_path: Path, direct: bool, split: int) -> None:
    files, memory = write_files(tmp_path, (7, 5)), slab(3)
    wanted = [(0, 6), (1, 0), (0, 1), (1, 4), (0, 3)]
    seconds, was_direct = time_reads(
        files, STRIDE, memory, wanted, seconds=60, threads=2, direct=direct, split=split
    )
    assert len(seconds) == 2
    assert min(seconds) > 0
    assert was_direct <= direct
    last = memory.numpy().reshape(3, STRIDE)
    for slot, (layer, expert) in enumerate([(1, 4), (0, 3), (0, 1)]):  # the second burst has two records
        np.testing.assert_array_equal(last[slot], record(layer, expert))


def test_bursts_end_with_their_time(tmp_path: Path) -> None:
    files = write_files(tmp_path, (7,))
    seconds, _ = time_reads(files, STRIDE, slab(1), [(0, 1)] * 1000, seconds=0)
    assert len(seconds) == 1


def test_reads_that_cannot_be(tmp_path: Path) -> None:
    files = write_files(tmp_path, (7,))
    for wrong in ([(1, 0)], [(0, 7)], [(0, -1)]):
        with pytest.raises(ArgumentError, match="layer|expert"):
            time_reads(files, STRIDE, slab(1), wrong, seconds=1)
    with pytest.raises(ArgumentError, match="split"):
        time_reads(files, STRIDE, slab(1), [(0, 0)], seconds=1, split=100)
    with pytest.raises(ArgumentError, match="slab"):
        time_reads(files, STRIDE, slab(1).view((100,), np.uint8), [(0, 0)], seconds=1)
    with pytest.raises(FormatError):
        time_reads([(files[0][0], 8)], STRIDE, slab(1), [(0, 0)], seconds=1)


def test_reads_that_fail(tmp_path: Path) -> None:
    files = write_files(tmp_path, (7,))
    _native_tests.fail_reads("error", errno.EBADF)
    try:
        with pytest.raises(FileError, match="expert 2"):
            time_reads(files, STRIDE, slab(1), [(0, 2)], seconds=1)
    finally:
        _native_tests.plain_reads()


def test_a_probe_measures_every_setting(tmp_path: Path) -> None:
    files = [RecordFile(path, experts, STRIDE) for path, experts in write_files(tmp_path, (7, 5))]
    steps: list[tuple[int, int]] = []
    speed = probe_reads(files, 3, 0.2, lambda *step: steps.append(step))
    assert (speed.record, speed.at_once) == (STRIDE, 3)
    settings = [(one.threads, one.direct, one.split) for one in speed.speeds]
    assert len(set(settings)) == len(settings)
    assert {split for _, _, split in settings} == {0}  # a record is smaller than all parts
    assert {threads for threads, direct, _ in settings if not direct} == {4, 8, 16}
    assert all(one.bandwidth > 0 for one in speed.speeds)
    assert [done for done, _ in steps] == list(range(1, steps[-1][1] + 1))


def test_the_preferred_setting_is_used_unless_another_is_much_faster() -> None:
    one, two, three = (ReadSpeed(threads, True, 0, speed) for threads, speed in ((8, 90), (4, 100), (2, 50)))
    assert DiskSpeed(4096, 8, (one, two, three)).best == one
    assert DiskSpeed(4096, 8, (three, two, one)).best == two


def test_a_policy_is_that_of_the_disk(tmp_path: Path, own_cache: Path) -> None:
    assert Policy.of(tmp_path) == Policy()
    speed = DiskSpeed(1 << 20, 8, (ReadSpeed(3, False, 8192, 1e9),))
    saved = speed.save(tmp_path)
    assert saved == own_cache / saved_name(tmp_path, 1 << 20)
    assert DiskSpeed.of(tmp_path / "cache") == speed
    assert Policy.of(tmp_path) == Policy(threads=3, direct=False, split=8192)
    assert Policy.of(tmp_path / "nothing here") == Policy()


def test_each_size_of_records_has_its_own_settings(tmp_path: Path) -> None:
    for threads, size in ((2, 100_000), (4, 1_769_472), (16, 40 << 20)):
        DiskSpeed(size, 8, (ReadSpeed(threads, True, 0, 1e9),)).save(tmp_path)
    assert Policy.of(tmp_path).threads == 4  # no model: records of 2 MiB
    for stride, threads in (
        (16384, 2),
        (131072, 2),
        (1 << 20, 4),
        (3 << 20, 4),
        (16 << 20, 16),
        (1 << 40, 16),
    ):
        manifest = {"layers": [{"stride": 16384}, {"stride": stride}]}
        (tmp_path / "packed.json").write_text(json.dumps(manifest))
        assert Policy.of(tmp_path).threads == threads, stride
    for damaged in ("", "[]", '{"layers": []}', '{"layers": [{"stride": "x"}]}', "[" * 100_000):
        (tmp_path / "packed.json").write_text(damaged)
        assert Policy.of(tmp_path).threads == 4, damaged


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'{"version": 0}',
        b'{"version": 1, "record": 1, "at_once": 1, "speeds": []}',
        b'{"version": 1, "record": 1, "at_once": 1, "speeds": [{"threads": 1}]}',
    ],
)
def test_content_that_cannot_be_used_is_ignored(tmp_path: Path, own_cache: Path, content: bytes) -> None:
    own_cache.mkdir()
    (own_cache / saved_name(tmp_path)).write_bytes(content)
    assert Policy.of(tmp_path) == Policy()


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"threads": 1e9}, {"split": 100}, {"direct": 1}, {"bandwidth": -1.0}]
)
def test_wrong_settings_are_ignored(tmp_path: Path, own_cache: Path, wrong: dict) -> None:
    right = {"threads": 3, "direct": False, "split": 8192, "bandwidth": 1e9}
    name = saved_name(tmp_path)
    cache.write_cached(name, {"version": 1, "record": 4096, "at_once": 8, "speeds": [right]})
    assert Policy.of(tmp_path).threads == 3
    cache.write_cached(name, {"version": 1, "record": 4096, "at_once": 8, "speeds": [right | wrong]})
    assert Policy.of(tmp_path) == Policy()


def test_the_folder_for_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("PYTURBO_CACHE", "")
    assert cache.cache_folder() is None
    assert cache.write_cached("x.json", {}) is None
    assert cache.read_cached("x.json") == {}
    monkeypatch.delenv("PYTURBO_CACHE")
    folder = cache.cache_folder()
    assert folder is not None
    assert folder.name == "pyturbo"
    assert folder.is_relative_to(tmp_path)
    if os.uname().sysname == "Linux":
        monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
        assert cache.cache_folder() == Path("/elsewhere/pyturbo")
    monkeypatch.delenv("HOME")
    assert cache.cache_folder() is None


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "file"))
    with pytest.raises(FileError, match="cannot be made"):
        cache.write_cached("x.json", {})


def test_cached_files_are_written_whole(own_cache: Path) -> None:
    cache.write_cached("x.json", {"a": 1})
    cache.write_cached("x.json", {"a": 2})
    assert json.loads((own_cache / "x.json").read_text()) == {"a": 2}
    assert [path.name for path in own_cache.iterdir()] == ["x.json"]


def test_a_temporary_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyturbo.streaming.disk_probe._MOST", 4 << 20)
    monkeypatch.setattr("pyturbo.streaming.disk_probe._LEAST", 2 << 20)
    monkeypatch.setattr("pyturbo.streaming.disk_probe._SYNCED", 1)
    steps: list[tuple[int, int]] = []
    with temporary_records(tmp_path, lambda *step: steps.append(step)) as file:
        assert steps == [(2 << 20, 4 << 20), (4 << 20, 4 << 20)]
        assert file.path.parent == tmp_path
        assert file.path.stat().st_size == file.experts * file.stride == 4 << 20
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(FileError, match="expected 268.4 MB of free space"), temporary_records(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
