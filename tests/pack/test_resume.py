"""Runs of pack that end early: what stays, what the next run uses of it, and what it does not.

tests/pack/killed_pack.py kills real runs.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyturbo.pack.work
from pyturbo.checkpoint.manifest import Manifest
from pyturbo.convert import convert
from pyturbo.errors import FileError
from pyturbo.pack import journal, pack, verify
from pyturbo.pack.plan import LayerJob
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx

LAYERS = ["experts/layer-000.bin", "experts/layer-001.bin"]  # finished before the third


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_mlx(MODELS["mixtral"], tmp_path / "mlx")


def stop(monkeypatch: pytest.MonkeyPatch, error: BaseException, layer: int = 2) -> None:
    """Have runs end with an error in the middle of that layer."""
    write = pyturbo.pack.work.write_layer

    def failing(path: Path, job: LayerJob, advance: Callable[[int], None]) -> list[str]:
        if path.name == f"layer-{layer:03}.bin":
            path.write_bytes(b"begun")
            raise error
        return write(path, job, advance)

    monkeypatch.setattr(pyturbo.pack.work, "write_layer", failing)


def partial(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.name.endswith(".pyturbo-partial")]
    return found


def interrupted(source: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Path:
    """Interrupt a run, and return the folder that stays."""
    with monkeypatch.context() as patch:
        stop(patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            pack(source, source.parent / "packed", **options)
    assert not (source.parent / "packed").exists()
    return partial(source.parent)


def finish(source: Path, **options: Any) -> pyturbo.pack.Packed:
    done = pack(source, source.parent / "packed", **options)
    assert verify(done.path, source).ok
    assert sorted(path.name for path in source.parent.iterdir()) == ["mlx", "packed"]
    assert not (done.path / journal.NAME).exists()
    return done


def marks(folder: Path) -> dict[str, tuple[int, int]]:
    """Number and time of change of the finished files."""
    names = [*LAYERS, "model.safetensors"]
    return {name: ((folder / name).stat().st_ino, (folder / name).stat().st_mtime_ns) for name in names}


def test_finished_files_are_not_written_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = interrupted(source, monkeypatch)
    before = marks(left)
    done = finish(source)
    assert marks(done.path) == before
    layers = Manifest.read(done.path).layers
    assert done.reused_bytes == done.resident_bytes + sum(layer.nbytes for layer in layers[:2])
    shutil.move(done.path, source.parent.parent / "once")
    assert finish(source).reused_bytes == 0
    for name in [path.name for path in (source.parent.parent / "once").iterdir() if path.is_file()]:
        once, again = ((folder / name).read_bytes() for folder in (source.parent.parent / "once", done.path))
        assert once == again


@pytest.mark.parametrize("name", ["experts/layer-001.bin", "model.safetensors"])
def test_a_finished_file_that_is_damaged_is_written_again(
    name: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = interrupted(source, monkeypatch)
    before = marks(left)
    with (left / name).open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    done = finish(source)
    assert [one for one, mark in marks(done.path).items() if mark != before[one]] == [name]


@pytest.mark.parametrize("name", ["experts/layer-001.bin", "model.safetensors"])
def test_a_finished_file_that_is_gone_is_written_again(
    name: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (interrupted(source, monkeypatch) / name).unlink()
    assert finish(source).reused_bytes > 0


def test_the_journal_counts_up_to_its_first_damaged_line(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = interrupted(source, monkeypatch)
    before = marks(left)
    whole = (left / journal.NAME).read_bytes().splitlines(keepends=True)
    assert len(whole) == 4  # the key, resident tensors, two layers
    (left / journal.NAME).write_bytes(b"".join(whole[:3]) + whole[3][:-2])
    done = finish(source)
    assert [one for one, mark in marks(done.path).items() if mark != before[one]] == [LAYERS[1]]


@pytest.mark.parametrize("damage", ["gone", "empty", "first line", "huge"])
def test_without_a_journal_it_starts_again(
    damage: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = interrupted(source, monkeypatch) / journal.NAME
    if damage == "gone":
        path.unlink()
    elif damage == "huge":
        with path.open("r+b") as file:
            file.truncate(1 << 31)
    else:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[1:])
    assert finish(source).reused_bytes == 0


def test_other_options_and_another_source_start_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(source, monkeypatch)
    assert finish(source, expert_bits=3).reused_bytes == 0
    shutil.rmtree(source.parent / "packed")
    interrupted(source, monkeypatch)
    shard = sorted(source.glob("*.safetensors"))[-1]
    shard.touch()  # it may have been written to
    assert finish(source).reused_bytes == 0


def test_a_file_beside_the_tensors_that_is_gone_does_not_come_back(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "merges.txt").write_text("a b")
    left = interrupted(source, monkeypatch)
    (left / "merges.txt").write_text("a b")  # as a run has it that was killed later
    (source / "merges.txt").unlink()
    assert not (finish(source).path / "merges.txt").exists()


def test_errors_of_requantised_layers_are_remembered(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = finish(source, expert_bits=2)
    shutil.rmtree(once.path)
    interrupted(source, monkeypatch, expert_bits=2)
    again = finish(source, expert_bits=2)
    assert again.reused_bytes > 0
    assert again.errors == once.errors


def test_a_full_disk_in_the_middle_is_resumed(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop(patch, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(FileError, match="packed: cannot be written: No space left on device"):
            pack(source, source.parent / "packed")
    assert finish(source).reused_bytes > 0


@pytest.mark.parametrize("error", [ValueError("a mistake"), KeyboardInterrupt()])
def test_nothing_stays_that_is_of_no_use(
    error: BaseException, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a mistake of ours nothing is trusted; before the first finished file there is nothing to keep."""
    if isinstance(error, KeyboardInterrupt):
        monkeypatch.setattr(pyturbo.pack.work, "write_resident", lambda *arguments: stop_now(error))
    else:
        stop(monkeypatch, error)
    with pytest.raises(type(error)):
        pack(source, source.parent / "packed")
    assert [path.name for path in source.parent.iterdir()] == ["mlx"]


def stop_now(error: BaseException) -> None:
    raise error


def test_room_is_asked_for_before_the_work(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 5, 5))
    with pytest.raises(FileError, match=r"/packed: expected room for 2\.\d MB, found 5 B on the disk$"):
        pack(source, source.parent / "packed")
    assert [path.name for path in source.parent.iterdir()] == ["mlx"]


def test_room_is_asked_for_what_is_left(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = interrupted(source, monkeypatch)
    free = 1_000_000  # enough for one layer, not for all
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 5, free))
    assert finish(source).reused_bytes > 0
    assert not left.exists()


def test_what_convert_leaves_and_finds(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion to the same target removes what pack left; pack continues nothing of a conversion."""
    interrupted(source, monkeypatch)
    convert(write_hf(MODELS["qwen3"], source.parent / "hf"), source.parent / "packed")
    assert sorted(path.name for path in source.parent.iterdir()) == ["hf", "mlx", "packed"]


def test_a_run_at_work_is_left_alone(source: Path) -> None:
    """A second run to the same target neither resumes nor removes what the first is writing."""
    seen = []

    def second(done: int, total: int) -> None:
        if not seen and done > total // 2:
            seen.append(partial(source.parent))
            pack(source, source.parent / "packed", force=True)
            assert seen[0].is_dir()

    pack(source, source.parent / "packed", force=True, progress=second)
    assert verify(source.parent / "packed", source).ok
    assert sorted(path.name for path in source.parent.iterdir()) == ["mlx", "packed"]


@pytest.mark.slow
def test_killed_runs(tmp_path: Path) -> None:
    write_mlx(MODELS["mixtral"], tmp_path / "model")
    script = Path(__file__).parent / "killed_pack.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "12"],
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] >= 12
    assert found["resumed"] > 0
    assert found["names"] == ["model"]
