"""Where pack may write. tests/test_convert_target.py has the rules that it shares with convert."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyturbo.convert import convert
from pyturbo.errors import ArgumentError, FileError, FormatError
from pyturbo.pack import pack, verify
from test_convert_target import contents
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_mlx(MODELS["mixtral"], tmp_path / "work" / "m")


def refused(source: Path, target: str | Path, message: str, force: bool = True) -> None:
    around = source.parent.parent
    before = contents(around)
    with pytest.raises(FileError, match=message):
        pack(source, target, force=force)
    assert contents(around) == before
    assert not [path for path in around.rglob("*") if "pyturbo" in path.name]


def test_the_source_and_folders_around_and_in_it(source: Path) -> None:
    refused(source, source, "expected a folder apart from the source .*, got the source itself")
    for target in (source.parent, source / "packed", "/"):
        refused(source, target, "expected a folder apart from the source .*, got one that lies in the other")
    refused(source, source.parent / "absent" / "packed", "absent: expected a folder to write to, found none")


def test_what_pack_did_not_write(source: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "thesis.txt").write_text("years of work")
    refused(source, docs, "docs: already exists and holds thesis.txt, which this pack did not write")
    converted = tmp_path / "converted"
    convert(write_hf(MODELS["qwen3"], tmp_path / "hf"), converted)
    refused(source, converted, "holds model.safetensors.index.json, which this pack did not write")
    (converted / "model.safetensors.index.json").unlink()
    refused(source, converted, "holds model.safetensors, which this pack did not write")


def test_what_was_put_beside_a_packed_checkpoint(source: Path, tmp_path: Path) -> None:
    target = pack(source, tmp_path / "packed").path
    (target / ".DS_Store").touch()
    (target / "experts" / ".DS_Store").touch()
    refused(source, target, "packed: already exists; --force, or force=True, replaces it", force=False)
    pack(source, target, force=True)
    for name in ("notes.txt", "experts/notes.txt", "experts/layer-x.bin"):
        (target / name).touch()
        refused(source, target, f"packed: already exists and holds {name}, which this pack did not write")
        (target / name).unlink()
    (target / "experts" / "layer-007.bin").mkdir()
    refused(source, target, "holds experts/layer-007.bin, which")
    (target / "experts" / "layer-007.bin").rmdir()
    with pytest.raises(FileError, match="packed: already exists and holds experts, which this convert did"):
        convert(write_hf(MODELS["qwen3"], tmp_path / "hf"), target, force=True)


def test_a_packed_checkpoint_is_replaced_when_asked(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    target.mkdir(mode=0o750)
    target.chmod(0o750)
    pack(source, target)  # an empty folder needs no force
    (target / "packed.json").write_text("damaged")
    pack(source, target, expert_bits=2, force=True)
    assert verify(target, source).ok
    assert target.stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "work"]


def test_what_is_put_into_the_target_at_the_last_moment(source: Path, tmp_path: Path) -> None:
    """The pack that could not get its name is finished by the next run."""
    target = tmp_path / "packed"
    target.mkdir()

    def late(done: int, total: int) -> None:
        (target / "thesis.txt").write_text("years of work")

    with pytest.raises(FileError, match="/packed: already exists and holds thesis.txt, which this pack"):
        pack(source, target, progress=late)
    assert contents(target) == {"thesis.txt": b"years of work"}
    (target / "thesis.txt").unlink()
    done = pack(source, target)
    assert done.reused_bytes == done.record_bytes + done.resident_bytes
    assert verify(target, source).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "work"]


def test_unfinished_packs_are_not_read(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    pack(source, target)
    os.rename(target, tmp_path / ".packed.0123456789abcdef.pyturbo-partial")  # noqa: PTH104
    with pytest.raises(FileError, match="expected another name: .pyturbo-partial marks unfinished files"):
        pack(source, tmp_path / ".packed.0123456789abcdef.pyturbo-partial")
    with pytest.raises(FormatError, match="expected a complete checkpoint, got an unfinished one"):
        verify(tmp_path / ".packed.0123456789abcdef.pyturbo-partial")
    with pytest.raises(ArgumentError, match="pack: target: expected a path, got int"):
        pack(source, 3)
