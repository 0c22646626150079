"""Files and folders that replace others: leftovers, locks, and systems that can do less.

tests/test_killed_writers.py kills real writers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyturbo.errors import FileError
from pyturbo.files import exchange, publish, replace
from pyturbo.files.replace import is_partial, new_file, new_folder, remove_leftovers
from pyturbo.files.target import require_replaceable

NAMES = [".a.0123456789abcdef.pyturbo-partial", ".a.fedcba9876543210.pyturbo-partial"]


def anything(path: Path) -> None:
    """Lets everything be replaced."""


def write_file(target: Path, text: str, check: Callable[[Path], None] = anything) -> None:
    with new_file(target, check) as descriptor:
        os.write(descriptor, text.encode())


def write_folder(target: Path, text: str, check: Callable[[Path], None] = anything) -> None:
    with new_folder(target, check) as folder:
        assert is_partial(folder)
        (folder / "file").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_leftovers_of_the_same_target_are_removed(write: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_text("cut")
    (tmp_path / NAMES[1]).mkdir()
    (tmp_path / NAMES[1] / "file").write_text("cut")
    others = [
        ".ab.0123456789abcdef.pyturbo-partial",
        ".a.0123456789abcdef.0123456789abcdef.pyturbo-partial",
        ".a.0123456789abcdeg.pyturbo-partial",
        ".a.0123456789abcdef.pyturbo-partial.txt",
    ]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".a.00000000000000ff.pyturbo-partial").symlink_to(others[0])
    write(tmp_path / "a", "new")
    assert names(tmp_path) == sorted([*others, ".a.00000000000000ff.pyturbo-partial", "a"])


def test_what_a_live_writer_has_stays(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with new_folder(target, anything) as slow:
        (slow / "file").write_text("slow")
        with new_file(tmp_path / "b", anything) as descriptor:
            write_folder(target, "quick")
            write_file(tmp_path / "b", "quick")
            assert (slow / "file").read_text() == "slow"
            assert len(names(tmp_path)) == 4
            os.write(descriptor, b"slow")
    assert (target / "file").read_text() == (tmp_path / "b").read_text() == "slow"
    assert names(tmp_path) == ["a", "b"]


def test_one_that_is_taken_for_a_leftover_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks between the making of a file and its lock."""
    taken = []
    lock = replace.lock

    def late(descriptor: int, how: int) -> bool:
        if how == fcntl.LOCK_EX and len(taken) < 2:
            taken.append(descriptor)
            remove_leftovers(tmp_path / "a")
            assert names(tmp_path) == []
        return lock(descriptor, how)

    monkeypatch.setattr(replace, "lock", late)
    write_file(tmp_path / "a", "new")
    assert len(taken) == 2
    assert names(tmp_path) == ["a"]


def test_where_there_are_no_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / NAMES[0]).touch()
    write_file(tmp_path / "a", "new")
    assert names(tmp_path) == [NAMES[0], "a"]


def test_a_folder_that_cannot_be_listed_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    write_file(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_an_error_leaves_what_was_there(write: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    asked = []

    def second(path: Path) -> None:
        asked.append(path)
        if len(asked) == 2:  # something else has come meanwhile
            raise FileError("no")

    with pytest.raises(FileError, match="no"):
        write(tmp_path / "a", "new", second)
    read = tmp_path / "a" if write is write_file else tmp_path / "a" / "file"
    assert read.read_text() == "old"
    assert names(tmp_path) == ["a"]
    write(tmp_path / "a", "new")
    assert read.read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_there_is_always_something_under_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders change places: no rename takes the target away first."""
    write_folder(tmp_path / "a", "old")
    exchanged = []

    def watched(one: Path, other: Path) -> bool:
        exchanged.append((one, other))
        return exchange.exchange(one, other)

    monkeypatch.setattr(publish, "exchange", watched)
    monkeypatch.setattr(Path, "rename", lambda *arguments: pytest.fail("renamed"))
    write_folder(tmp_path / "a", "new")
    assert len(exchanged) == 1
    assert (tmp_path / "a" / "file").read_text() == "new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("exchanged", [True, False])
@pytest.mark.parametrize("before", ["old", None])
def test_what_comes_after_the_last_check_is_not_lost(
    before: str | None, exchanged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that someone puts into the target before the names change."""
    target, asked = tmp_path / "a", []
    write_folder(target, before) if before else target.mkdir()
    if not exchanged:
        monkeypatch.setattr(publish, "exchange", lambda *paths: False)

    def check(path: Path) -> None:
        if (path / "thesis").exists():
            raise FileError(f"{path}: holds a thesis")
        asked.append(path)
        if len(asked) == 2:
            (path / "thesis").write_text("years of work")

    with pytest.raises(FileError, match="/a: holds a thesis"):
        write_folder(target, "new", check)
    assert names(target) == (["file", "thesis"] if before else ["thesis"])
    assert names(tmp_path) == ["a"]


def test_an_interrupt_after_the_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "a", "old")
    calls = []

    def interrupted(one: Path, other: Path) -> bool:
        exchange.exchange(one, other)
        calls.append(one)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(publish, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "a", "new")
    assert (tmp_path / "a" / "file").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_read_only_leftover_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A superuser deletes from read-only folders too, so that this one looks at the mode."""
    leftover = tmp_path / NAMES[0]
    leftover.mkdir(mode=0o555)
    remove = shutil.rmtree

    def careful(path: Path, **options: bool) -> None:
        if path.stat().st_mode & 0o200:
            remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", careful)
    write_folder(tmp_path / "a", "new")
    assert names(tmp_path) == ["a"]


def test_what_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_folder(tmp_path / "a", "old")

    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    write_folder(tmp_path / "a", "new")
    (left,) = [path for path in tmp_path.iterdir() if path.name != "a"]
    expected = f"{left}: is no longer needed and cannot be deleted: Permission denied"
    assert [record.getMessage() for record in caplog.records] == [expected]
    assert (tmp_path / "a" / "file").read_text() == "new"


class TestAccess:
    """Owner, group and mode of what is replaced; a superuser is not needed to see what is asked for."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        asked = []
        monkeypatch.setattr(os, "fchown", lambda _, owner, group: asked.append((owner, group)))
        return asked

    @pytest.mark.parametrize("write", [write_file, write_folder])
    def test_it_is_kept(
        self, write: Callable[..., None], asked: list[tuple[int, int]], tmp_path: Path
    ) -> None:
        write(tmp_path / "a", "old")
        assert asked == []
        (tmp_path / "a").chmod(0o770)
        write(tmp_path / "a", "new")
        status = (tmp_path / "a").stat()
        assert sorted(asked) == sorted([(-1, status.st_gid), (status.st_uid, -1)])
        assert status.st_mode & 0o777 == 0o770

    def test_rights_go_with_a_group_that_cannot_be_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(descriptor: int, owner: int, group: int) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        write_file(tmp_path / "a", "old")
        (tmp_path / "a").chmod(0o664)
        group, stat = (tmp_path / "a").stat().st_gid, Path.stat

        def of_another_group(path: Path, **options: bool) -> os.stat_result:
            status = stat(path, **options)
            return os.stat_result((*status[:5], group + 1, *status[6:])) if path.name == "a" else status

        monkeypatch.setattr(os, "fchown", refuse)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", of_another_group)
            write_file(tmp_path / "a", "new")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o604


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_file_system_that_cannot_sync_is_written_to(
    write: Callable[..., None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    write(tmp_path / "a", "new")
    assert names(tmp_path) == ["a"]


def test_where_nothing_can_be_made_the_reason_is_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /proc, which says that there is no such file."""

    def refuse(path: Path, *arguments: int) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(FileError, match="a: cannot be written: No such file or directory"):
            write_file(tmp_path / "a", "new")
    assert names(tmp_path) == []


class TestWithoutExchange:
    @pytest.fixture(autouse=True)
    def _cannot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(publish, "exchange", lambda *paths: False)

    def test_two_renames(self, tmp_path: Path) -> None:
        for text in ("old", "new"):
            write_folder(tmp_path / "a", text)
            assert (tmp_path / "a" / "file").read_text() == text
            assert names(tmp_path) == ["a"]

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("call", [1, 2])
    @pytest.mark.parametrize(
        ("failure", "message"),
        [
            (OSError(errno.EIO, "Input/output error"), "a: cannot be written: Input/output error"),
            (KeyboardInterrupt(), "^$"),
        ],
    )
    def test_the_old_one_comes_back_after_a_failure(
        self,
        failure: BaseException,
        message: str,
        call: int,
        moment: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Before or after either of the two renames."""
        write_folder(tmp_path / "a", "old")
        rename, calls = Path.rename, []

        def fail(path: Path, other: Path) -> None:
            calls.append(path)
            if len(calls) == call and moment == "before":
                raise failure
            rename(path, other)
            if len(calls) == call:
                raise failure

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises((FileError, KeyboardInterrupt), match=message):
            write_folder(tmp_path / "a", "new")
        assert (tmp_path / "a" / "file").read_text() == "old"
        assert names(tmp_path) == ["a"]

    def test_the_old_one_comes_back_after_a_kill_between_the_renames(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "a", "old")
        (tmp_path / "a").rename(tmp_path / ".a.0123456789abcdef.pyturbo-previous")

        def refuse(path: Path) -> None:
            raise FileError("is there")

        with pytest.raises(FileError, match="is there"):
            write_folder(tmp_path / "a", "new", refuse)
        assert (tmp_path / "a" / "file").read_text() == "old"
        assert names(tmp_path) == ["a"]

    def test_an_old_one_that_was_replaced_is_removed(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "a", "new")
        write_folder(tmp_path / ".a.0123456789abcdef.pyturbo-previous", "old")
        write_folder(tmp_path / "a", "newer")
        assert names(tmp_path) == ["a"]


def test_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "ötzi"
    one.write_text("1")
    other.mkdir()
    assert exchange.exchange(one, other)
    assert one.is_dir()
    assert other.read_text() == "1"
    with pytest.raises(FileNotFoundError):
        exchange.exchange(one, tmp_path / "absent")

    class OldLibrary:
        def __init__(self, *arguments: object, **options: object) -> None:
            pass

    monkeypatch.setattr(exchange.ctypes, "CDLL", OldLibrary)
    assert not exchange.exchange(one, other)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_exchange_where_a_filter_of_system_calls_refuses_it(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, *arguments: object, **options: object) -> None:
            self.renameat2 = self.renamex_np = lambda *arguments: -1

    monkeypatch.setattr(exchange.ctypes, "CDLL", Library)
    monkeypatch.setattr(exchange.ctypes, "get_errno", lambda: code)
    assert not exchange.exchange(tmp_path / "one", tmp_path / "other")


def test_only_own_and_empty_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def require(path: Path) -> None:
        require_replaceable(path, lambda head: head.startswith(b"ours"), "a file of ours")

    path = tmp_path / "file"
    require(path)
    for data in (b"", b"ours", b"ours" * 5000):
        path.write_bytes(data)
        require(path)
    with monkeypatch.context() as patch:  # a superuser may write to all
        patch.setattr(os, "access", lambda place, mode: place != tmp_path or mode != os.W_OK | os.X_OK)
        for name in ("file", "new"):
            with pytest.raises(FileError, match=f"{tmp_path.name}: cannot be written: it is read-only"):
                require(tmp_path / name)
    for data in (b"our", b"your"):
        path.write_bytes(data)
        with pytest.raises(FileError, match="file: exists and is not a file of ours; delete it or name"):
            require(path)
    with pytest.raises(FileError, match=f"{tmp_path.name}: expected a file to write to, got a folder"):
        require(tmp_path)
    with pytest.raises(FileError, match="absent: expected a folder to write to, found none"):
        require(tmp_path / "absent" / "file")
