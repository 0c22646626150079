"""Converted checkpoints: the tensors that ``mlx_lm.convert -q`` writes, as tests/tiny_models.py knows them.

tests/oracle/check_convert.py compares with mlx_lm itself, at all widths and types.
"""

from __future__ import annotations

import errno
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.file import ALIGNMENT
from pyturbo.convert import convert, work
from pyturbo.convert.plan import Output
from pyturbo.convert.shards import Shards
from pyturbo.errors import ArgumentError, FileError, FormatError
from tiny_configs import FP_MODELS, MODELS, TinyModel
from tiny_models import hf_tensors, mlx_tensors, write_hf
from write_safetensors import CODES, write_safetensors

SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
GATES = {".mlp.gate": {"group_size": 64, "bits": 8}, ".mlp.shared_expert_gate": {"group_size": 64, "bits": 8}}


def as_converted(model: TinyModel) -> TinyModel:
    """The model with the formats that a conversion gives it."""
    return replace(model, overrides=GATES)


def expected(model: TinyModel) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A conversion leaves out vision, and leaves alone rows that are not whole groups."""
    tensors, quantization = mlx_tensors(as_converted(model))
    return {name: array for name, array in tensors.items() if "vision" not in name}, quantization


# Of deepseek_v3 a conversion keeps kv_b_proj, which mlx-lm takes apart, and gpt_oss is refused: see the tests
# of these models.
NAMES = [name for name in MODELS | FP_MODELS if name != "qwen2" and not name.startswith(("deepseek", "gpt"))]


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_tensors_of_mlx_lm(name: str, tmp_path: Path) -> None:
    model = (MODELS | FP_MODELS)[name]
    source = write_hf(model, tmp_path / "hf")
    form = model.bits, model.group_size, SHORT[model.dtype]
    convert(source, tmp_path / "mlx", *form, mode=model.mode, shard_bytes=300_000)
    want, quantization = expected(model)
    with open_checkpoint(tmp_path / "mlx") as written:
        assert written.keys() == want.keys()
        for tensor, array in want.items():
            got = written.read(tensor)
            assert (got.dtype, got.shape) == (array.dtype, array.shape), tensor
            assert written[tensor].dtype == CODES[array.dtype], tensor
            assert got.tobytes() == array.tobytes(), tensor
        sizes = {info.file.path.name: info.file.path.stat().st_size for info in written.values()}
    assert len(sizes) > 1
    assert all(int(path.split("-")[1]) for path in sizes)
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"] == quantization | {"mode": model.mode}


def plain_copy(source: Path, target: Path) -> Path:
    """A converted checkpoint with the values of its weights instead of their codes."""
    target.mkdir()
    tensors = {}
    with open_checkpoint(source) as written:
        for name in written:
            path, _, part = name.rpartition(".")
            scales = f"{path}.scales"
            if part in ("scales", "biases"):
                continue
            array = written.read(name)
            if part == "weight" and scales in written and written[scales].dtype == "U8":
                mode = json.loads((source / "config.json").read_text())["quantization"]["mode"]
                array = ops.fp_dequantize(array, written.read(scales), mode)
            elif part == "weight" and scales in written:
                scale, bias = written.read(scales), written.read(f"{path}.biases")
                width = array.shape[-1] * 32 // (scale.shape[-1] * 64)
                array = ops.affine_dequantize(
                    array, scale.astype(np.float32), bias.astype(np.float32), width, 64
                )
            tensors[name] = array
    config = json.loads((source / "config.json").read_text())
    del config["quantization"], config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config))
    write_safetensors(target / "model.safetensors", tensors, "mlx")
    return target


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("name", ["qwen2", "qwen3_next", "qwen3_moe", "qwen3_5_moe", "deepseek_v3"])
def test_small_floats_give_what_their_values_give(name: str, mode: str, tmp_path: Path) -> None:
    source = write_hf(MODELS[name], tmp_path / "hf")
    convert(source, tmp_path / "small", mode=mode)
    plain = plain_copy(tmp_path / "small", tmp_path / "plain")
    small, want = (
        pyturbo.load(path, "cpu", kv="f32").session(32).prefill(range(1, 12))
        for path in (tmp_path / "small", plain)
    )
    assert np.abs(small - want).max() < 5e-4 * want.std()


def test_rows_that_are_not_whole_groups_stay_as_they_are(tmp_path: Path) -> None:
    model = MODELS["qwen3_5_moe"]  # a width of 192 and one of 128
    convert(write_hf(model, tmp_path / "hf"), tmp_path / "mlx", 4, 128, "f16")
    with open_checkpoint(tmp_path / "mlx") as written:
        assert written["language_model.lm_head.weight"].dtype == "F16"
        assert "language_model.lm_head.scales" not in written
        assert "language_model.model.layers.0.mlp.shared_expert.down_proj.scales" in written
        assert written["language_model.model.layers.0.linear_attn.A_log"].dtype == "F32"
    pyturbo.load(tmp_path / "mlx").logits([1, 2])


def test_a_converted_model_is_mapped_and_writes_the_same_text(tmp_path: Path) -> None:
    model = MODELS["qwen3_next"]
    source = write_hf(model, tmp_path / "hf")
    for name in ("tokenizer_config.json", "generation_config.json"):
        (source / name).write_text("{}")
    convert(source, tmp_path / "mlx", 8, 32)
    assert (tmp_path / "mlx" / "tokenizer_config.json").read_text() == "{}"
    with open_checkpoint(tmp_path / "mlx") as written:
        assert all(info.mapped for info in written.values() if info.nbytes % ALIGNMENT == 0)
        assert all(info.offset % 64 == 0 for info in written.values() if info.nbytes % 64 == 0)
    ids = [3, 1, 4, 1, 5]
    texts = [pyturbo.load(folder).generate(ids, max_tokens=4).tokens for folder in (source, tmp_path / "mlx")]
    assert texts[0] == texts[1]


def test_refusals(tmp_path: Path) -> None:
    model = MODELS["llama"]
    source = write_hf(model, tmp_path / "hf")
    target = tmp_path / "mlx"
    with pytest.raises(ArgumentError, match="bits: expected one of"):
        convert(source, target, 7)
    with pytest.raises(ArgumentError, match="mode: expected one of affine, mxfp4, mxfp8, nvfp4, got 'fp4'"):
        convert(source, target, mode="fp4")
    with pytest.raises(ArgumentError, match="bits and group_size: expected 8 and 32 for mxfp8, got 4 and 32"):
        convert(source, target, 4, mode="mxfp8")
    with pytest.raises(ArgumentError, match="dtype: expected one of bf16, f16, f32, got 'f8'"):
        convert(source, target, dtype="f8")
    with pytest.raises(FileError, match="expected a folder to write to"):
        convert(source, tmp_path / "absent" / "mlx")
    convert(source, target)
    with pytest.raises(FormatError, match="expected a model in floating point, got a quantised one"):
        convert(target, tmp_path / "again")
    with pytest.raises(FileError, match="mlx: already exists; --force, or force=True, replaces it"):
        convert(source, target)
    convert(source, target, 8, force=True)
    with open_checkpoint(target) as written:
        assert written.config["quantization"]["bits"] == 8
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(FormatError, match="expected the tensors of llama, found 9 others"):
        convert(source, tmp_path / "other")
    (source / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(
        FormatError, match="num_hidden_layers: expected at most 3, the layers with tensors, got 4"
    ):
        convert(source, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "mlx"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_hf(MODELS["qwen3"], tmp_path / "hf")
    target = tmp_path / "mlx"
    convert(source, target)
    calls = []

    def fail(self: Shards, output: Output, offset: int, data: np.ndarray) -> None:
        calls.append(output.name)
        if len(calls) > 7:
            raise error

    monkeypatch.setattr(Shards, "write", fail)
    threads = threading.active_count()
    with pytest.raises(type(error) if isinstance(error, KeyboardInterrupt) else FileError) as raised:
        convert(source, target, force=True)
    if isinstance(error, OSError):
        assert str(raised.value) == f"{target}: cannot be written: No space left on device"
    assert threading.active_count() == threads
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "mlx"]
    monkeypatch.undo()
    pyturbo.load(target).logits([1])  # what was there is still whole


def test_a_full_disk_is_seen_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_hf(MODELS["qwen3"], tmp_path / "hf")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 5, 5))
    with pytest.raises(FileError, match=r"/mlx: expected room for 1\.\d MB, found 5 B on the disk$"):
        convert(source, tmp_path / "mlx")


def test_memory_and_blocks_do_not_depend_on_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one row give the same files as blocks of whole matrices, and progress covers the source."""
    source = write_hf(MODELS["qwen3_5_moe"], tmp_path / "hf")
    convert(source, tmp_path / "once")
    monkeypatch.setattr(work, "_BLOCK", 1000)
    seen: list[tuple[int, int]] = []
    done = convert(source, tmp_path / "rows", progress=lambda *both: seen.append(both))
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "rows" / name).read_bytes() == (tmp_path / "once" / name).read_bytes()
    assert seen[-1] == (done.source_bytes, done.source_bytes)
    texts = [name for name in hf_tensors(MODELS["qwen3_5_moe"]) if "visual" not in name and "mtp" not in name]
    tensors = hf_tensors(MODELS["qwen3_5_moe"])
    assert done.source_bytes == sum(tensors[name].nbytes for name in texts)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
