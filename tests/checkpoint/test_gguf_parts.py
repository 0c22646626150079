"""GGUF files that are split into several, and our writer of such files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gguf_models import GGUF_MODELS, gguf_tensors, metadata, write
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.gguf import read_header
from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf
from pyturbo.errors import ArgumentError, FileError, FormatError
from pyturbo.model import load

ONE = GGUF_MODELS["qwen3"]
PARTS = (5, 20, 10)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return write(ONE, tmp_path / "model.gguf", PARTS)


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def test_any_part_may_be_named(parts: list[Path], tmp_path: Path) -> None:
    assert [path.name for path in parts] == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    (whole,) = write(ONE, tmp_path / "whole.gguf")
    tokens = ONE.model.tokens()[:20]
    want = load(whole).logits(tokens)
    for path in parts:
        model = load(path)
        np.testing.assert_array_equal(model.logits(tokens), want)
        assert model.prompt_ids([{"role": "user", "content": "a"}])[0] == 258


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(parts: list[Path], missing: int) -> None:
    parts[missing].unlink()
    with pytest.raises(
        FileError,
        match=rf"model-0000{missing + 1}-of-00003.gguf: no such file: part {missing + 1} of 3 .* missing",
    ):
        open_checkpoint(parts[missing - 1])


def test_parts_of_other_files(parts: list[Path], tmp_path: Path) -> None:
    head = b"split.no\x02\0\0\0"  # the key and the kind of its value, u16
    content = [path.read_bytes() for path in parts]
    change(parts[1], head + b"\x01\0", head + b"\x02\0")
    with pytest.raises(
        FormatError, match=r"00002-of-00003.gguf: split.no: this is part 3 of 3, its name says 2"
    ):
        open_checkpoint(parts[0])
    parts[1].write_bytes(content[1])
    change(parts[2], b"split.count\x02\0\0\0\x03\0", b"split.count\x02\0\0\0\x04\0")
    with pytest.raises(FormatError, match=r"00003-of-00003.gguf: split.count: expected 3, got 4"):
        open_checkpoint(parts[0])
    with pytest.raises(FormatError, match="expected a name like model-00001-of-00004.gguf"):
        open_checkpoint(parts[2])
    parts[2].write_bytes(content[2])
    key = b"split.tensors.count\x05\0\0\0"
    change(parts[0], key + bytes([35, 0, 0, 0]), key + bytes([36, 0, 0, 0]))
    with pytest.raises(
        FormatError, match=r"split.tensors.count: expected 35, the tensors of all 3 parts, got 36"
    ):
        open_checkpoint(parts[1])
    parts[0].write_bytes(content[0])
    renamed = parts[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(FormatError, match="expected a name like model-00001-of-00003.gguf"):
        open_checkpoint(renamed)


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    tensors = [GgufTensor.of(name, np.ones(8, np.float32)) for name in ("a", "b", "a")]
    paths = write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"}, tensors, parts=(2, 1))
    with pytest.raises(FormatError, match="00002-of-00002.gguf: 'a': occurs twice, also in .*00001-of-00002"):
        open_checkpoint(paths[0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    metadata = {
        "whole": 3, "number": 0.5, "flag": True, "text": "grüße", "texts": ["a", "ж"], "flags": [True, False],
        "wholes": [1, -2], "numbers": [0.5, 1.5], "short": np.uint16(9), "long": np.int64(-(2**40)),
    }  # fmt: skip
    blocks = np.arange(36, dtype=np.uint8).reshape(2, 18)
    tensors = [
        GgufTensor.of("first", np.arange(5, dtype=np.float32)),
        GgufTensor("second", "Q4_0", (2, 32), [blocks[:1], blocks[1:].tobytes()]),
    ]
    (path,) = write_gguf(tmp_path / "x.gguf", metadata, tensors, alignment=64)
    header = read_header(path)
    assert header.metadata.pop("general.alignment") == 64
    for key, value in metadata.items():
        got = header.metadata[key]
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == value
    second = header.tensors["second"]
    assert (second.dtype, second.shape, second.offset % 64) == ("Q4_0", (2, 32), 0)
    np.testing.assert_array_equal(second[:], blocks)
    with pytest.raises(ArgumentError, match="first: expected 24 bytes, got 20"):
        write_gguf(path, {}, [GgufTensor.of("first", np.zeros(5, np.float32), shape=(6,))])
    with pytest.raises(ArgumentError, match="parts: expected 2 tensors, got 3"):
        write_gguf(path, {}, tensors, parts=(1, 2))


@pytest.mark.parametrize("name", sorted(GGUF_MODELS))
def test_a_missing_tensor_has_the_name_of_the_file(name: str, tmp_path: Path) -> None:
    """Some that each network cannot do without are left out in turn."""
    one = GGUF_MODELS[name]
    tensors = gguf_tensors(one)
    needed = re.compile(
        r"token_embd|blk\.0\.((attn|ffn|post_attention)_norm|ffn_(gate|up|down)(_exps)?\.weight)"
    )
    left = [raw for raw in tensors if needed.match(raw)]
    assert len(left) >= 3
    for raw in left:
        rest = [GgufTensor.of(other, array) for other, array in tensors.items() if other != raw]
        (path,) = write_gguf(tmp_path / "model.gguf", metadata(one), rest)
        with pytest.raises(FormatError, match=rf"model.gguf: .*'{re.escape(raw)}'"):
            load(path)
