"""Packed checkpoints equal what loading their source gives, array by array."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kernels.random_blocks import random_weight
from models.test_gpt_oss import MXFP4, published
from models.test_gpt_oss import write as write_gpt_oss
from models.test_mixtral import gguf_tensors, in_floats, write_gguf
from pack.packed import compare_with_loading
from pyturbo import ops
from pyturbo.checkpoint import open_checkpoint, safetensors
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.manifest import PAGE, Manifest
from pyturbo.checkpoint.names import is_padding
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.model import load
from pyturbo.pack import pack, verify, write
from reference import gguf as reference
from tiny_configs import FP_MODELS, MODELS
from tiny_models import mlx_tensors, write_hf, write_mlx
from write_safetensors import write_shards

WITH_EXPERTS = ["qwen3_5_moe", "qwen3_next", "qwen3_moe", "deepseek_v3", "mixtral", "gpt_oss"]
SMALL_FLOATS = [name for name in FP_MODELS if not name.startswith("llama")]


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_a_hugging_face_directory(name: str, tmp_path: Path) -> None:
    source, target = write_hf(MODELS[name], tmp_path / "hf"), tmp_path / "packed"
    done = pack(source, target, check=True)
    compare_with_loading(source, target, MODELS[name].config["model_type"])
    assert verify(target, source).ok
    manifest = Manifest.read(target)
    assert done.experts == sum(layer.experts for layer in manifest.layers)
    assert all(form is None for layer in manifest.layers for form in layer.formats.values())
    assert done.errors == {}


@pytest.mark.parametrize("name", [*WITH_EXPERTS, *SMALL_FLOATS])
def test_an_mlx_directory(name: str, tmp_path: Path) -> None:
    model = (MODELS | FP_MODELS)[name]
    source, target = write_mlx(model, tmp_path / "mlx"), tmp_path / "packed"
    pack(source, target, check=True)
    compare_with_loading(source, target, model.config["model_type"])
    assert verify(target, source).ok


def test_experts_of_gpt_oss_as_published(tmp_path: Path) -> None:
    source = write_gpt_oss(tmp_path / "blocks", published()[0], **MXFP4)
    pack(source, tmp_path / "packed", check=True)
    compare_with_loading(source, tmp_path / "packed", "gpt_oss")
    (layer, *_) = Manifest.read(tmp_path / "packed").layers
    assert layer.formats["gate_proj"].mode == "mxfp4"
    assert layer.part("up_proj.bias").shape == (128,)


def test_a_global_scale_is_a_part_of_its_record(tmp_path: Path) -> None:
    model = FP_MODELS["qwen3_5_moe_nvfp4"]
    source = write_mlx(model, tmp_path / "mlx")
    tensors, _ = mlx_tensors(model)
    rng = np.random.default_rng(2)
    for name in [name for name in tensors if name.endswith(".scales") and tensors[name].dtype == np.uint8]:
        lead = tensors[name].shape[:-2]
        tensors[name.replace(".scales", ".global_scale")] = rng.uniform(2000, 3000, lead).astype(np.float32)
    write_shards(source, tensors, "mlx", model.mlx_shards)
    pack(source, tmp_path / "packed", check=True)
    compare_with_loading(source, tmp_path / "packed", "qwen3_5_moe")
    (layer, *_) = Manifest.read(tmp_path / "packed").layers
    assert layer.part("down_proj.global_scale").shape == ()
    done = pack(source, tmp_path / "small", expert_bits=3)
    assert 0.05 < done.errors["all"] < 0.3  # far above 1 if the factor were left out


@pytest.mark.parametrize("kinds", ["F32", "Q8_0", "Q4_1 Q5_0", "MXFP4 F32"])
def test_a_gguf_file(kinds: str, tmp_path: Path) -> None:
    """Experts of the first type, everything else of the last one."""
    rng = np.random.default_rng(5)
    tensors = {}
    for name, array in gguf_tensors().items():
        kind = kinds.split()[0 if "_exps" in name else -1]
        tensors[name] = in_floats(array)
        if kind != "F32" and array.ndim > 1 and "gate_inp" not in name:
            lead, blocks = array.shape[:-1], array.shape[-1] // reference.SIZES[kind][1]
            data = random_weight(rng, (*lead, blocks), kind).blocks
            tensors[name] = (kind, array.shape, data.tobytes())
    source, target = write_gguf(tmp_path / "a.gguf", tensors), tmp_path / "packed"
    pack(source, target, check=True)
    compare_with_loading(source, target, "llama")
    with open_checkpoint(source) as checkpoint, DirectoryCheckpoint(target) as packed:
        for name, value in checkpoint.config.items():
            assert packed.config[name] == value
        assert packed.tokenizer == checkpoint.tokenizer
        assert len(packed.tokenizer.tokens) == 4
        assert packed.sampling == checkpoint.sampling
    tokens = MODELS["mixtral"].tokens()[:9]
    got, want = (load(path).logits(tokens) for path in (target, source))
    np.testing.assert_array_equal(got, want)
    if kinds == "Q8_0":
        assert 0.05 < pack(source, tmp_path / "small", expert_bits=3, check=True).errors["all"] < 0.3


def test_the_layout_of_the_files(tmp_path: Path) -> None:
    source, target = write_mlx(MODELS["gpt_oss"], tmp_path / "mlx"), tmp_path / "packed"
    (source / "tokenizer_config.json").write_text("{}")
    pack(source, target)
    names = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    layers = [f"experts/layer-00{i}.bin" for i in range(3)]
    assert names == ["config.json", *layers, "model.safetensors", "packed.json", "tokenizer_config.json"]
    assert (target / "config.json").read_bytes() == (source / "config.json").read_bytes()
    manifest = Manifest.read(target)
    for layer in manifest.layers:
        assert layer.stride % PAGE == 0
        assert layer.stride - layer.parts[-1].end < PAGE
        for before, after in pairwise(layer.parts):
            assert 0 <= after.offset - before.end < 64
        kinds = ["weight", "scales", "biases", "bias"]
        assert [part.name for part in layer.parts] == [
            f"{name}_proj.{kind}" for name in ("gate", "up", "down") for kind in kinds
        ]
    data = (target / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % 4096 == 0
    infos, metadata = safetensors.read_header(target / "model.safetensors")
    assert metadata["format"] == "mlx"
    end, padding = start, 0
    for name, info in infos.items():
        assert info.offset == end, name
        assert is_padding(name) or info.offset % 64 == 0, name
        padding += is_padding(name)
        end += info.nbytes
    assert end == len(data)
    assert padding  # biases of the router and sinks are short


def plain_values(folder: Path) -> dict[str, np.ndarray]:
    """The values of all experts in float32, by layer and projection."""
    values = {}
    for layer in Manifest.read(folder).layers:
        records = np.fromfile(folder / layer.file, np.uint8)
        for name, form in layer.formats.items():
            arrays = {
                part.name.split(".")[1]: layer.array(part, records)
                for part in layer.parts
                if part.name.startswith(name)
            }
            if form is None:
                values[f"{layer.path}.{name}"] = arrays["weight"].astype(np.float32)
                continue
            scales, biases = (arrays[part].astype(np.float32) for part in ("scales", "biases"))
            values[f"{layer.path}.{name}"] = ops.affine_dequantize(
                arrays["weight"], scales, biases, form.bits, form.group_size
            )
    return values


@pytest.mark.parametrize("bits", [2, 3])
@pytest.mark.parametrize("kind", ["hf", "mlx"])
def test_fewer_bits_and_their_error(kind: str, bits: int, tmp_path: Path) -> None:
    source = (write_hf if kind == "hf" else write_mlx)(MODELS["qwen3_moe"], tmp_path / "source")
    pack(source, tmp_path / "exact")
    done = pack(source, tmp_path / "small", expert_bits=bits, check=True)
    compare_with_loading(source, tmp_path / "small", "qwen3_moe", experts=False)
    manifest = Manifest.read(tmp_path / "small")
    assert manifest.source["expert_bits"] == bits
    assert {form.bits for layer in manifest.layers for form in layer.formats.values()} == {bits}
    exact, small = plain_values(tmp_path / "exact"), plain_values(tmp_path / "small")
    for name in ("gate_proj", "up_proj", "down_proj", "all"):
        keys = [key for key in exact if name in ("all", key.rpartition(".")[2])]
        squares = sum(np.square(exact[key], dtype=np.float64).sum() for key in keys)
        errors = sum(np.square(small[key] - exact[key], dtype=np.float64).sum() for key in keys)
        assert done.errors[name] == pytest.approx((errors / squares) ** 0.5, rel=1e-9)
    assert 0.05 < done.errors["all"] < 0.6
    assert done.record_bytes < pack(source, tmp_path / "exact", force=True).record_bytes


def test_refusals(tmp_path: Path) -> None:
    dense = write_hf(MODELS["qwen3"], tmp_path / "dense")
    with pytest.raises(FormatError, match="dense: expected a model with experts, got qwen3 without any"):
        pack(dense, tmp_path / "packed")
    source = write_mlx(MODELS["mixtral"], tmp_path / "mlx")
    with pytest.raises(ArgumentError, match="expert_bits: expected 2 or 3, got 4"):
        pack(source, tmp_path / "packed", expert_bits=4)
    with pytest.raises(ArgumentError, match="check: expected True or False, got 1"):
        pack(source, tmp_path / "packed", check=1)
    pack(source, tmp_path / "packed")
    with pytest.raises(FormatError, match="packed: expected a checkpoint to pack, got one that is packed al"):
        pack(tmp_path / "packed", tmp_path / "again")
    with pytest.raises(FormatError, match="mlx: expected a packed checkpoint, found no packed.json"):
        verify(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "mlx", "packed"]


def test_a_source_that_changes_meanwhile(tmp_path: Path) -> None:
    source = write_mlx(MODELS["mixtral"], tmp_path / "mlx")
    shard = sorted(source.glob("*.safetensors"))[0]
    with pytest.raises(FormatError, match="mlx: expected a checkpoint that stays as it is"):
        pack(source, tmp_path / "packed", progress=lambda *both: shard.touch())
    assert [path.name for path in tmp_path.iterdir()] == ["mlx"]


def test_check_finds_what_the_disk_did_not_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_mlx(MODELS["mixtral"], tmp_path / "mlx")
    write_at = write.write_at

    def wrong(file: int, data: memoryview, offset: int) -> None:
        changed = bytearray(data)
        changed[-1] ^= offset == 0  # of each file, in the first bytes that are written
        write_at(file, memoryview(changed), offset)

    monkeypatch.setattr(write, "write_at", wrong)
    message = "/packed: is damaged: model.safetensors: header checksum: .*: expert 0: checksum: .* and 1 more"
    with pytest.raises(FormatError, match=message):
        pack(source, tmp_path / "packed", check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mlx"]


def test_progress_covers_everything_once(tmp_path: Path) -> None:
    source = write_mlx(MODELS["mixtral"], tmp_path / "mlx")
    seen: list[tuple[int, int]] = []
    done = pack(source, tmp_path / "packed", check=True, progress=lambda *both: seen.append(both))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] == 3 * (done.record_bytes + done.resident_bytes)
