"""Packing GGUF files that are split, or are named as if they were: metadata comes from the right file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gguf_models import GGUF_MODELS, gguf_tensors, write
from pack.packed import compare_with_loading
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.errors import FormatError
from pyturbo.pack import pack

ONE = GGUF_MODELS["qwen3moe"]


def assert_same_text(source: Path, target: Path) -> None:
    with open_checkpoint(source) as checkpoint, DirectoryCheckpoint(target) as packed:
        assert packed.tokenizer == checkpoint.tokenizer
        assert packed.sampling == checkpoint.sampling


def split(path: Path) -> list[Path]:
    count = len(gguf_tensors(ONE))
    return write(ONE, path, (4, 3, count - 7))


@pytest.mark.parametrize("number", [0, 2])
def test_any_part_may_be_packed(number: int, tmp_path: Path) -> None:
    source, target = split(tmp_path / "model.gguf")[number], tmp_path / "packed"
    pack(source, target, check=True)
    compare_with_loading(source, target, "qwen3_moe")
    assert_same_text(source, target)


@pytest.mark.parametrize("name", ["model-00002-of-00003.gguf", "model-00000-of-00003.gguf"])
def test_a_whole_file_may_be_named_like_a_part(name: str, tmp_path: Path) -> None:
    """The file that its name would make the first part is of another model."""
    (whole,) = write(ONE, tmp_path / "whole.gguf")
    source, target = whole.rename(tmp_path / name), tmp_path / "packed"
    (tmp_path / "model-00001-of-00003.gguf").write_bytes(b"GGUF of another model")
    pack(source, target, check=True)
    assert_same_text(source, target)


def test_a_part_with_a_number_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    parts = split(tmp_path / "model.gguf")
    for name in ("model-00000-of-00003.gguf", "model-00004-of-00003.gguf"):
        shutil.copy(parts[0], tmp_path / name)
        with pytest.raises(FormatError, match=f"{name}: split.count: expected a name like model-00001-of-0"):
            pack(tmp_path / name, tmp_path / "packed")
