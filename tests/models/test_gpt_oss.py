"""What tests/models/test_parity.py does not see of gpt_oss: other forms of its files, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pyturbo import ops
from pyturbo.checkpoint import open_checkpoint
from pyturbo.convert import convert
from pyturbo.describe import describe
from pyturbo.errors import FormatError
from pyturbo.model import load
from reference import fp
from tiny_configs import MODELS
from tiny_models import hf_tensors, mlx_layout, mlx_tensors, write_hf
from write_safetensors import write_shards

MODEL = MODELS["gpt_oss"]
BOUND = 2e-3  # of the logits' standard deviation, as in test_parity


def write(folder: Path, tensors: dict[str, np.ndarray], **changes: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(MODEL.config | changes))
    write_shards(folder, tensors, "pt", 1)
    return folder


def test_a_bfloat16_export_is_its_values(tmp_path: Path) -> None:
    rounded = {name: array.astype(ml_dtypes.bfloat16) for name, array in hf_tensors(MODEL).items()}
    exact = {name: array.astype(np.float32) for name, array in rounded.items()}
    got, want = (
        load(write(tmp_path / name, tensors), kv="f32").logits(MODEL.tokens())
        for name, tensors in (("bf16", rounded), ("f32", exact))
    )
    assert np.abs(got - want).max() <= 1e-4 * want.std()


MXFP4 = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}


def published() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The tensors with experts in mxfp4 as they are published, and with the values these stand for."""
    blocks, values = {}, {}
    for name, array in hf_tensors(MODEL).items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks[name] = values[name] = array
            continue
        packed, scales = ops.fp_quantize(np.ascontiguousarray(array.swapaxes(1, 2)), "mxfp4")
        blocks[f"{name}_blocks"] = packed.view(np.uint8).reshape(*scales.shape, 16)
        blocks[f"{name}_scales"] = scales
        exact = fp.dequantize(fp.Weight(packed, scales, "mxfp4")).astype(np.float32)
        values[name] = np.ascontiguousarray(exact.swapaxes(1, 2))
    return blocks, values


def test_published_experts_are_their_values(tmp_path: Path) -> None:
    blocks, values = published()
    path = write(tmp_path / "blocks", blocks, **MXFP4)
    want = load(write(tmp_path / "values", values), kv="f32").logits(MODEL.tokens())
    model = load(path, kv="f32")
    assert np.abs(model.logits(MODEL.tokens()) - want).max() <= 1e-4 * want.std()
    session = model.session(64)
    for token in MODEL.tokens()[:40]:
        logits = session.step(int(token))
    assert np.abs(logits - want[39]).max() <= 1e-4 * want.std()
    with open_checkpoint(path) as checkpoint:
        facts = describe(checkpoint)
    assert facts["parameters"] == sum(array.size for array in values.values())
    assert facts["file_bytes"] == sum(array.nbytes for array in blocks.values())
    assert facts["bytes"] == model.session(64).memory().weights
    assert facts["formats"]["mxfp4"] == 6
    assert facts["mapped_bytes"] + facts["copied_bytes"] == facts["bytes"]


def test_wrong_blocks(tmp_path: Path) -> None:
    blocks, _ = published()
    name = "model.layers.2.mlp.experts.down_proj"
    for i, (change, message) in enumerate(
        (
            ({f"{name}_blocks": blocks[f"{name}_blocks"][..., :8]}, "expected .experts, out, groups, 16."),
            ({f"{name}_scales": blocks[f"{name}_scales"][:, 1:]}, "expected .experts, out, groups, 16."),
            ({f"{name}_blocks": blocks[f"{name}_blocks"].astype(np.float32)}, "dtype: expected U8, got F32"),
            (
                {f"{name}_{part}": blocks[f"{name}_{part}"][:5] for part in ("blocks", "scales")},
                r"shape: expected \[6, 192, 128\], got \[5, 192, 128\]",
            ),
        )
    ):
        tensors = blocks | {key: np.ascontiguousarray(array) for key, array in change.items()}
        with pytest.raises(FormatError, match=message):
            load(write(tmp_path / str(i), tensors, **MXFP4))


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": MODEL.config["rope_scaling"] | {"truncate": True}},
        {"swiglu_limit": 100.0},
        {"swiglu_alpha": 1.0},
        {"sliding_window": 28},
        {"layer_types": ["full_attention"] * 3},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_the_configuration_says_is_seen(tmp_path: Path, changes: dict[str, object]) -> None:
    """So that the agreement with the golden means something."""
    golden = np.load(Path(__file__).parent.parent / "goldens" / "models" / "gpt_oss.npz")
    want = golden["hf_logits"]
    got = load(write(tmp_path / "model", hf_tensors(MODEL), **changes), kv="f32").logits(golden["tokens"])
    assert np.abs(got - want).max() > 2 * BOUND * want.std()


def test_layers_take_turns_where_nothing_is_said(tmp_path: Path) -> None:
    layers = load(write(tmp_path / "model", hf_tensors(MODEL), layer_types=None)).network.layers
    assert [layer.mixer.kv_heads.window for layer in layers] == [27, 0, 27]


def test_refusals(tmp_path: Path) -> None:
    tensors = hf_tensors(MODEL)

    def refused(message: str, tensors: dict[str, np.ndarray] = tensors, **changes: object) -> None:
        folder = write(tmp_path / str(len(list(tmp_path.iterdir()))), tensors, **changes)
        with pytest.raises(FormatError, match=message):
            load(folder)

    path = "model.layers.1.mlp.experts."
    refused("rope_theta: expected a base, got None", rope_theta=None)
    refused("swiglu_limit: expected a number that is not negative, got -1", swiglu_limit=-1.0)
    refused("num_experts_per_tok: expected at most 6, got 7", num_experts_per_tok=7)
    refused("sliding_window: expected a count, got None", sliding_window=None)
    for name in ("gate_up_proj", "down_proj_bias"):
        left = {key: array for key, array in tensors.items() if key != path + name}
        refused(f"{path}{name}': expected a tensor of this name, found none", left)
    short = tensors | {path + "gate_up_proj_bias": np.zeros((6, 254), np.float32)}
    refused(r"gate_up_proj_bias': shape of gate_proj: expected \[6, 128\], got \[6, 127\]", short)
    flat = tensors | {path + "down_proj": np.zeros((6 * 128, 192), np.float32)}
    refused(r"experts.down_proj': shape: expected 3 axes, got \[768, 192\]", flat)
    wide = tensors | {path + "down_proj": np.zeros((6, 128, 193), np.float32)}
    refused(r"down_proj.weight': shape: expected \[6, 192, 128\], got \[6, 193, 128\]", wide)


def test_transposed_experts_are_not_converted(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="gate_proj.bias: expected rows .*: use gpt_oss as published"):
        convert(write_hf(MODEL, tmp_path / "hf"), tmp_path / "mlx")


def test_stacks_of_mlx_are_converted(tmp_path: Path) -> None:
    source = write(tmp_path / "stacks", mlx_layout(MODEL, hf_tensors(MODEL)))
    convert(source, tmp_path / "mlx", MODEL.bits, MODEL.group_size, "bf16")
    want, quantization = mlx_tensors(MODEL)
    with open_checkpoint(tmp_path / "mlx") as written:
        assert written.config["quantization"] == quantization | {"mode": "affine"}
        assert written.keys() == want.keys()
        for name, array in want.items():
            assert written.read(name).tobytes() == array.tobytes(), name
