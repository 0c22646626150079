"""Files of experts that are damaged or replaced while a model uses them: named errors, or right tokens."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pyturbo
from packed_models import streamed, write_packed
from pyturbo import _native_tests
from pyturbo._machine import used_memory
from pyturbo.engine.budget import HEADROOM
from pyturbo.engine.session import Session
from pyturbo.errors import FileError, FormatError, StateError
from pyturbo.model import Model
from pyturbo.streaming import Policy

PROMPT = [5, 9, 1, 30, 44, 3, 17, 8, 90, 61, 2, 77, 13, 21, 34, 55, 89, 144, 7, 6]
TOKENS = 5

#: Tokens of a prompt for the CPU. Where shaders run on it, one is enough: a chunk takes them long.
LONG, SHORT = len(PROMPT), 1


# Slow tests come first: a fixture of the module would be made again for the others.
@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_packed(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def wanted(paths: tuple[Path, Path]) -> dict[int, list[int]]:
    """The tokens after so many of the prompt, with all weights in memory."""
    with pyturbo.load(paths[0], "cpu") as model:
        return {count: model.generate(PROMPT[:count], TOKENS).tokens for count in (LONG, SHORT)}


@pytest.fixture
def packed(paths: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(paths[1], tmp_path / "packed"))


@pytest.fixture(autouse=True)
def plain_reads() -> Iterator[None]:
    yield
    _native_tests.plain_reads()


def opened(path: Path, mode: str, device: str = "cpu") -> Model:
    return streamed(path, device, 2) if mode == "stream" else pyturbo.load(path, device)


def layer_file(folder: Path) -> Path:
    return sorted((folder / "experts").iterdir())[1]


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 100)


def overwrite(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(byte ^ 0x55 for byte in data))


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)


def lock(path: Path) -> None:
    path.chmod(0)


#: Damage, and what it says; None: the file that was opened is still there.
DAMAGE: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "truncated": (truncate, "became shorter|got the end of the file"),
    "overwritten": (overwrite, "was written to"),
    "replaced": (replace, None),
    "deleted": (Path.unlink, None),
    "unreadable": (lock, None),
}


@pytest.mark.spread
@pytest.mark.parametrize("device", pyturbo.devices())
@pytest.mark.parametrize("mode", ["mapped", "stream"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_files_change_while_a_reply_runs(
    packed: Path, wanted: dict[int, list[int]], damage: str, mode: str, device: str
) -> None:
    change, message = DAMAGE[damage]
    count = LONG if device == "cpu" else SHORT
    with opened(packed, mode, device) as model:
        path = layer_file(packed)
        session, got = model.session(64), []
        reply = model.stream(PROMPT[:count], TOKENS, session=session)
        got += [next(reply).token, next(reply).token]
        change(path)
        if message is None:
            got += [chunk.token for chunk in reply]
            assert got == wanted[count]
            assert model.generate(PROMPT[:count], TOKENS, session=model.session(64)).tokens == got
            return
        with pytest.raises(FileError, match=f"{path.name}: .*({message})"):
            list(reply)
        with pytest.raises(FileError, match=f"{path.name}: "):
            model.session(64)
        with pytest.raises((FileError, StateError), match=f"{path.name}: "):
            model.generate([1], 1, session=session)
    if damage == "truncated":
        with pytest.raises(FormatError, match=f"{path.name}: expected .* bytes, got"):
            pyturbo.load(packed, device)


@pytest.mark.parametrize("damage", DAMAGE)
def test_files_that_are_damaged_before(packed: Path, damage: str) -> None:
    path = layer_file(packed)
    DAMAGE[damage][0](path)
    if damage in ("overwritten", "replaced"):  # `verify` finds it
        assert not pyturbo.pack.verify(packed).ok
        return
    if damage == "unreadable" and os.access(path, os.R_OK):
        pyturbo.load(packed, "cpu").close()  # this user may read every file
        return
    with pytest.raises((FileError, FormatError), match=path.name):
        pyturbo.load(packed, "cpu")


@pytest.mark.parametrize("write", [pyturbo.convert, pyturbo.pack])
def test_a_packed_checkpoint_is_no_source(packed: Path, tmp_path: Path, write: Callable[..., object]) -> None:
    with pytest.raises(
        FormatError, match="packed: expected a checkpoint to (convert|pack), got (a|one).*packed"
    ):
        write(packed, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_file_is_lost_between_two_looks_at_it(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store opens files again, after their sizes were checked."""
    path = layer_file(packed)
    real = pyturbo.placement.StreamedExperts

    def late(*arguments: object) -> object:
        path.unlink()
        return real(*arguments)

    monkeypatch.setattr(pyturbo.placement, "StreamedExperts", type("Late", (), {
        "__new__": lambda _, *arguments: late(*arguments), "least_bytes": staticmethod(real.least_bytes),
    }))  # fmt: skip
    memory = used_memory() + HEADROOM + 100_000_000
    with pytest.raises(FileError, match=f"{path.name}: cannot be opened: No such file"):
        pyturbo.load(packed, "cpu", memory=memory, policy=Policy(mode="stream"))


FAULTS = {
    "error": ("error", errno.EBADF),
    "repeated": ("error", errno.EIO),
    "short": ("short", 4096),
    "odd": ("short", 1000),
    "end": ("end", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "slots", "ahead"), [(1, 2, False), (3, 2, False), (3, 9, True)])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_read_goes_wrong_once(
    paths: tuple[Path, Path],
    wanted: dict[int, list[int]],
    fault: str,
    threads: int,
    slots: int,
    ahead: bool,
) -> None:
    """Each read for a prompt and one more token fails: an error that names a record, or the right tokens."""
    kind, value = FAULTS[fault]
    fails = fault in ("error", "end")
    number = reads = errors = 0
    with streamed(paths[1], "cpu", slots, threads=threads, split=16384, ahead=ahead) as model:
        while number <= reads:
            experts = model.runner.budget.experts
            experts.resize(experts.least)  # nothing of the run before is left but one expert
            experts.resize(slots * experts.least)
            session = model.session(64)
            _native_tests.fail_reads(kind, value, first=number, count=1)
            try:
                assert model.generate(PROMPT, 2, session=session).tokens == wanted[LONG][:2]
            except FileError as error:
                errors += 1
                said = str(error)
                assert ".bin: expert " in said
                with pytest.raises(StateError, match="the session cannot go on after: .*bin: expert "):
                    session.step(1)
                with pytest.raises(StateError, match="the session cannot go on after"):
                    session.save(paths[1].parent / "never.session")
            reads = max(reads, _native_tests.plain_reads())
            if number % 8 == 0:  # whatever happened, the next one works
                assert model.generate(PROMPT, TOKENS, session=model.session(64)).tokens == wanted[LONG]
            number += 1
    assert number > (20 if ahead else 40)
    assert errors > number // 3 if fails else errors == 0  # a guess that fails is no error


def test_a_disk_that_is_gone(paths: tuple[Path, Path], wanted: dict[int, list[int]]) -> None:
    """Every read fails for a while, and each session says so; afterwards new ones work."""
    with streamed(paths[1], "cpu", 2) as model:
        session = model.session(64)
        reply = model.stream(PROMPT, TOKENS, session=session)
        got = [next(reply).token]
        _native_tests.fail_reads("error", errno.EIO)
        with pytest.raises(
            FileError, match=r"layer-00\d.bin: expert \d+: .*Input/output error in 4 attempts"
        ):
            list(reply)
        with pytest.raises(FileError, match="Input/output error"):
            model.generate(PROMPT, TOKENS)
        with pytest.raises(StateError, match="cannot go on after: .*Input/output error"):
            session.fork().step(1)
        _native_tests.plain_reads()
        assert model.generate(PROMPT, TOKENS).tokens == wanted[LONG]
        assert got == wanted[LONG][:1]


@pytest.mark.slow
@pytest.mark.parametrize("device", [name for name in pyturbo.devices() if name != "cpu"])
def test_every_read_fails_once_on_other_devices(paths: tuple[Path, Path], device: str) -> None:
    """A run of two tokens: each device replays passes in its own way, and recovers from their errors."""

    def logits_of(session: Session) -> list[bytes]:
        return [session.step(token).tobytes() for token in PROMPT[:2]]

    with pyturbo.load(paths[0], device) as model:
        wanted = logits_of(model.session(16))
    number = reads = errors = 0
    with streamed(paths[1], device, 2, threads=2) as model:
        while number <= reads:
            experts = model.runner.budget.experts
            experts.resize(experts.least)
            experts.resize(2 * experts.least)
            session = model.session(16)
            _native_tests.fail_reads("error", errno.EBADF, first=number, count=1)
            try:
                assert logits_of(session) == wanted
            except FileError:
                errors += 1
                with pytest.raises(StateError, match="the session cannot go on after: .*bin: expert "):
                    session.step(1)
            reads = max(reads, _native_tests.plain_reads())
            number += 1
        assert logits_of(model.session(16)) == wanted
    assert number > 10
    assert errors > number // 2
