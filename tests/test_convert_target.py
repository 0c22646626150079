"""Where convert may write: nothing is lost, whatever target it is given."""

from __future__ import annotations

import builtins
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyturbo.checkpoint import open_checkpoint
from pyturbo.cli import main
from pyturbo.convert import convert
from pyturbo.convert import target as target_rules
from pyturbo.errors import ArgumentError, FileError, FormatError
from pyturbo.files import target as folder_rules
from tiny_configs import MODELS
from tiny_models import write_hf


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_hf(MODELS["qwen3"], tmp_path / "work" / "m")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(source: Path, target: str | Path, message: str, force: bool = True) -> None:
    """Checks that a conversion is refused and that nothing changed around the source."""
    around = source.parent.parent
    before = contents(around)
    with pytest.raises(FileError, match=message):
        convert(source, target, force=force)
    assert contents(around) == before
    assert not [path for path in around.rglob("*") if "pyturbo" in path.name]


def test_the_source_and_folders_around_and_in_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.parent / "thesis.txt").write_text("years of work")
    for target in (source, source / ".." / "m"):
        refused(source, target, "expected a folder apart from the source .*, got the source itself")
    for target in (source.parent, source.parent.parent, source / "4bit", "/"):
        refused(source, target, "expected a folder apart from the source .*, got one that lies in the other")
    alias = source.parent / "alias"
    alias.symlink_to(source)
    refused(source, alias, "got the source itself")
    refused(alias, source, "got the source itself")
    refused(source, alias / "4bit", "got one that lies in the other")
    monkeypatch.chdir(source)
    refused(source, ".", "got the source itself")
    assert main(["convert", str(source), str(source), "--force"]) == 1


def test_the_current_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused(source, ".", "here: expected a folder that can be renamed, got the current one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "work"]


def test_what_convert_did_not_write(source: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "thesis.txt").write_text("years of work")
    refused(source, docs, "docs: already exists and holds thesis.txt, which this convert did not write")
    refused(source, docs / "thesis.txt", "thesis.txt: expected a folder to write, got a file")
    os.mkfifo(tmp_path / "fifo")
    refused(source, tmp_path / "fifo", "fifo: expected a folder to write, got a file")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text("{}")
    refused(source, tmp_path / "cut", "holds config.json, which this convert did not write")
    other = write_hf(MODELS["llama"], tmp_path / "other")
    refused(source, other, "holds model.*safetensors, which this convert did not write")
    (other / "model.safetensors").write_bytes(b"damaged")
    refused(source, other, "holds model.safetensors, which this convert did not write")


def test_what_was_put_beside_a_converted_checkpoint(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "4bit"
    convert(source, target)
    (target / ".DS_Store").touch()
    convert(source, target, 8, force=True)
    for name in ("notes.txt", "adapters"):
        (target / name).mkdir() if name == "adapters" else (target / name).touch()
        refused(source, target, f"4bit: already exists and holds {name}, which this convert did not write")
        (target / name).rmdir() if name == "adapters" else (target / name).unlink()
    (target / "tokenizer.json").symlink_to(source / "config.json")
    refused(source, target, "holds tokenizer.json, which")
    (target / "tokenizer.json").unlink()
    (target / ".DS_Store").mkdir()
    (target / ".DS_Store" / "thesis.txt").write_text("years of work")
    refused(source, target, "holds .DS_Store, which")


def test_a_checkpoint_of_convert_is_replaced_when_asked(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "4bit"
    target.mkdir(mode=0o750)
    target.chmod(0o750)
    convert(source, target, 4)  # an empty folder needs no force
    refused(source, target, "4bit: already exists; --force, or force=True, replaces it", force=False)
    done = convert(source, target, 8, force=True)
    assert done.path == target
    assert target.stat().st_mode & 0o777 == 0o750
    with open_checkpoint(target) as written:
        assert written.config["quantization"]["bits"] == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4bit", "work"]


def test_a_link_stays_and_leads_to_the_folder(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("there")  # nothing is there yet
    for bits in (4, 8):
        convert(source, link, bits, force=True)
        assert link.is_symlink()
        config = json.loads((tmp_path / "there" / "config.json").read_text())
        assert config["quantization"]["bits"] == bits
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there", "work"]


@pytest.mark.parametrize("wrong", [3, b"mlx", None])
def test_what_is_no_path(wrong: object, source: Path) -> None:
    with pytest.raises(ArgumentError, match=f"convert: target: expected a path, got {type(wrong).__name__}"):
        convert(source, wrong)
    with pytest.raises(ArgumentError, match="expected a path"):
        convert(wrong, source.parent / "mlx")


def test_a_folder_that_cannot_be_written_to(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, *arguments: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)  # a superuser may write everywhere
    with pytest.raises(FileError, match="mlx: cannot be written: Permission denied"):
        convert(source, tmp_path / "mlx")
    monkeypatch.undo()
    assert main(["convert", str(source), "/proc/mlx"]) == 1
    assert "/proc/mlx: cannot be written: " in capsys.readouterr().err


def test_a_mount_point_is_refused_before_the_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of the same file system, as containers have them, which only the system's list tells."""
    message = "disk: expected a folder that can be renamed, got a mount point; name a new folder in it"
    disk, listed = tmp_path / "my disk", tmp_path / "work" / "mounts"
    disk.mkdir()
    monkeypatch.setattr(os, "mkdir", lambda *arguments: pytest.fail("it began"))
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: Path(path) == disk)
        refused(source, disk, message)
    name = str(disk).replace(" ", "\\040")
    listed.write_text(f"21 1 8:1 / / rw - ext4 /dev/sda rw\n22 21 8:1 /my {name} rw - ext4 /dev/sda rw\n")
    with monkeypatch.context() as patch:
        patch.setattr(folder_rules, "_MOUNTS", listed)
        refused(source, disk, message)
    monkeypatch.undo()
    listed.unlink()
    convert(source, disk)


def test_a_read_only_folder_is_refused_before_the_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "4bit"
    convert(source, folder)
    monkeypatch.setattr(os, "access", lambda path, how: (path, how) != (folder, os.W_OK))  # for a superuser
    monkeypatch.setattr(os, "mkdir", lambda *arguments: pytest.fail("it began"))
    refused(source, folder, "4bit: cannot be written: it is read-only")


def test_a_source_that_cannot_be_read_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges, open_, open_file = source / "merges.txt", os.open, builtins.open
    merges.touch()

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
            if path == merges:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return original(path, *arguments, **options)

        return refuse

    monkeypatch.setattr(os, "open", refusing(open_))
    monkeypatch.setattr(builtins, "open", refusing(open_file))
    with pytest.raises(FileError, match=r"m/merges.txt: cannot be opened: Permission denied"):
        convert(source, tmp_path / "4bit")
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_current_folder_that_is_no_more(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(source, tmp_path / "4bit")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    convert(source, tmp_path / "4bit", 8, force=True)
    assert json.loads((tmp_path / "4bit" / "config.json").read_text())["quantization"]["bits"] == 8


def test_what_is_put_into_the_target_at_the_last_moment(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, check, asked = tmp_path / "4bit", target_rules.check, []
    folder.mkdir()

    def late(place: Path, *arguments: Any) -> None:
        check(place, *arguments)
        asked.append(place)
        if len(asked) == 3:
            (folder / "thesis.txt").write_text("years of work")

    monkeypatch.setattr("pyturbo.convert.check", late)
    with pytest.raises(FileError, match="/4bit: already exists and holds thesis.txt, which this convert"):
        convert(source, folder)
    assert contents(folder) == {"thesis.txt": b"years of work"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4bit", "work"]


def test_a_target_that_cannot_be_renamed_leaves_nothing_behind(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mount point, which is busy."""
    target = tmp_path / "disk"
    target.mkdir()

    def busy(path: Path, other: Path) -> None:
        raise OSError(16, "Device or resource busy", str(path))

    monkeypatch.setattr(Path, "rename", busy)
    refused(source, target, "disk: cannot be written: Device or resource busy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "work"]


def test_unfinished_checkpoints_are_not_read(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / ".4bit.0123456789abcdef.pyturbo-partial")
    with pytest.raises(FormatError, match="expected a complete checkpoint, got an unfinished one"):
        open_checkpoint(tmp_path / ".4bit.0123456789abcdef.pyturbo-partial")
