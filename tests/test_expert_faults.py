"""The expert store: reads that fail, and files that are damaged, replaced or mapped."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from expert_files import STRIDE, Replays
from pyturbo import _native_tests
from pyturbo.errors import FileError

pytestmark = pytest.mark.usefixtures("plain_reads")


FAULTS = [("short", 1000), ("short", 4096), ("error", errno.EINTR), ("error", errno.EIO), ("direct", 0)]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("kind", "value"), FAULTS)
def test_reads_that_go_wrong_once_are_repeated(tmp_path: Path, kind: str, value: int, direct: bool) -> None:
    replays = Replays(tmp_path, slots=3, direct=direct, threads=1)
    with replays.store:
        _native_tests.fail_reads(kind, value, first=1, count=1)
        replays.replay([0, 1, 2, 3], [4])
        assert _native_tests.plain_reads() >= 5


@pytest.mark.parametrize("fault", ["open", "direct"])
def test_a_file_system_without_direct_reads(tmp_path: Path, fault: str) -> None:
    _native_tests.fail_reads(fault)
    replays = Replays(tmp_path, slots=3)
    with replays.store as store:
        replays.replay([0, 1, 2, 3], [4])
        assert not store.direct


def test_files_in_memory(tmp_path: Path) -> None:
    folder = Path("/dev/shm") / tmp_path.name
    if not folder.parent.is_dir():
        pytest.skip("this system has no /dev/shm")
    folder.mkdir()
    try:
        replays = Replays(folder, slots=3)
        with replays.store:
            replays.replay([0, 1, 2, 3], [4])
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.parametrize("staging", [0, 2])
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("error", errno.EIO, "Input/output error in 4 attempts"),
        ("error", errno.EBADF, "Bad file descriptor"),
        ("end", 0, "the end of the file at byte"),
    ],
)
def test_a_read_that_fails_names_the_record(
    tmp_path: Path, kind: str, value: int, message: str, staging: int
) -> None:
    replays = Replays(tmp_path, slots=6, staging=staging)
    with replays.store:
        replays.replay([0, 1], [0])
        _native_tests.fail_reads(kind, value)
        named = f"layer-000.bin: expert 4: expected bytes 0 to {STRIDE} of its record, got {message}"
        with pytest.raises(FileError, match=named):
            replays.replay([1, 4], [0])
        replays.check_tables()
        _native_tests.plain_reads()
        replays.replay([4, 1, 5], [0, 2])


@pytest.mark.parametrize(("slots", "staging"), [(1, 0), (3, 0), (5, 2)])
def test_each_read_fails_in_turn(tmp_path: Path, slots: int, staging: int) -> None:
    number = reads = 0
    errors: list[str] = []
    while number <= reads:
        replays = Replays(tmp_path, slots=slots, staging=staging, split=4096, threads=2)
        with replays.store:
            _native_tests.fail_reads("error", errno.EBADF, first=number, count=1)
            for choices in ([1, 2, 3], [0]), ([3, 4], [1]), ([0, 1, 2, 3, 4], [2, 0]):
                try:
                    replays.replay(*choices)
                except FileError as raised:
                    errors.append(str(raised))
                    replays.check_tables()
                    replays.replay(*choices)
            reads = _native_tests.plain_reads()
        number += 1
    assert number > 20
    assert len(errors) == number - 1
    assert all(": expert " in error and "got Bad file descriptor" in error for error in errors)


def test_a_truncated_file_is_an_error_at_once(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=3, direct=False)
    path = replays.files[0][0]
    with replays.store, path.open("r+b") as file:
        file.truncate(3 * STRIDE + 5000)
        _native_tests.fail_reads("slow", 0)  # only counts them
        with pytest.raises(FileError, match="expert 3: expected bytes 5000 to 12288 .* got the end"):
            replays.replay([3])
        assert _native_tests.plain_reads() == 2
        replays.replay([], [1])
        message = (
            f"layer-000.bin: became shorter .*expected {7 * STRIDE} bytes, got {3 * STRIDE + 5000}; load"
        )
        with pytest.raises(FileError, match=message):
            replays.replay([2, 0], [1])
        with pytest.raises(FileError, match=message):
            replays.store.check_files()


def test_a_file_that_was_written_to_is_not_read(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=3)
    path = replays.files[1][0]
    with replays.store as store:
        replays.replay([0], [1])
        store.check_files()
        with path.open("r+b") as file:
            file.write(b"x")
        os.utime(path, ns=(0, 1_000_000_000))
        message = "layer-001.bin: was written to, or touched, after it was opened; load the model again"
        with pytest.raises(FileError, match=message):
            store.check_files()
        replays.replay([1], [1])  # nothing of it is read
        with pytest.raises(FileError, match=message):
            replays.replay([1], [0])
    store.check_files()  # closed: there is nothing to check


def test_filled_slots_are_counted(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (7,), slots=6, staging=2)
    with replays.store as store:
        assert store.filled == 0
        replays.replay([1, 3])
        assert store.filled == 2
        replays.replay([1, 3, 4])
        assert store.filled == 3
        replays.replay(range(7))
        assert 4 <= store.filled <= 6
        store.resize(2, 1)
        assert store.filled == 2
        store.resize(6, 2)
        assert store.filled == 2
        replays.replay([0, 1, 2, 3])
        assert 3 <= store.filled <= 6
    assert store.filled == 0


def test_a_replaced_file_is_still_read(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=3)
    path = replays.files[0][0]
    with replays.store:
        other = path.with_suffix(".new")
        other.write_bytes(bytes(7 * STRIDE))
        other.replace(path)
        replays.replay([0, 5], [1])


@pytest.mark.parametrize("split", [0, 4096])
def test_mapped_files(tmp_path: Path, split: int) -> None:
    rng = np.random.default_rng(7)
    replays = Replays(tmp_path, mapped=True, threads=3, split=split)
    with replays.store as store:
        used: list[set[int]] = [set(), set()]
        for tokens in [1, 3, 4, 2, 4, 3]:  # few enough that no layer brings the next one
            choices = [set(rng.integers(0, experts, tokens).tolist()) for experts in (7, 5)]
            for passes, chosen, before in zip(replays.replay(*choices), choices, used):
                assert passes[0] == chosen & before  # the others are made present first
                before |= chosen
        assert replays.cached() == {(layer, expert): expert for layer in (0, 1) for expert in used[layer]}
        for stats, chosen in zip(store.stats(), used):
            assert stats["misses"] == len(chosen)
            assert stats["bytes"] == len(chosen) * STRIDE


def test_a_mapped_file_that_lost_a_part(tmp_path: Path) -> None:
    replays = Replays(tmp_path, mapped=True)
    with replays.store:
        os.truncate(replays.files[0][0], 2 * STRIDE)
        replays.replay([], [1])
        for choices in ([5], [0]):  # beyond the end, and before it
            with pytest.raises(FileError, match="layer-000.bin: became shorter while it was in use"):
                replays.replay(choices)
            with pytest.raises(FileError, match="layer-000.bin: became shorter while it was in use"):
                replays.store.check_files()
        assert replays.cached() == {(1, 1): 1}


def test_a_mapped_file_that_was_written_to(tmp_path: Path) -> None:
    replays = Replays(tmp_path, mapped=True)
    message = "layer-001.bin: was written to, or touched, after it was mapped; load the model again"
    with replays.store as store:
        replays.replay([0], [1])
        store.check_files()
        os.utime(replays.files[1][0], ns=(0, 1_000_000_000))
        with pytest.raises(FileError, match=message):
            store.check_files()
        replays.replay([1], [1])  # nothing of it is read
        with pytest.raises(FileError, match=message):
            replays.replay([1], [0])
