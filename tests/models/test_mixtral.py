"""What tests/models/test_parity.py does not see of mixtral: GGUF files, windows, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint import files
from pyturbo.checkpoint import open_checkpoint
from pyturbo.describe import describe
from pyturbo.errors import FormatError
from pyturbo.model import load
from reference import gguf as reference
from tiny_configs import MODELS
from tiny_models import hf_tensors, mlx_layout
from write_safetensors import write_shards

MODEL = MODELS["mixtral"]
BOUND = 2e-3  # of the logits' standard deviation, as in test_parity
GOLDEN = Path(__file__).parent.parent / "goldens" / "models" / "mixtral.npz"

#: Modules as llama.cpp names them.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.switch_mlp.gate_proj": "ffn_gate_exps",
    "block_sparse_moe.switch_mlp.up_proj": "ffn_up_exps",
    "block_sparse_moe.switch_mlp.down_proj": "ffn_down_exps",
}
HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}


def gguf_tensors() -> dict[str, np.ndarray]:
    """The tiny model under the names of llama.cpp, with queries and keys in the order of adjacent pairs."""
    tensors = {}
    for name, array in mlx_layout(MODEL, hf_tensors(MODEL)).items():
        path = name.removesuffix(".weight")
        place = ""
        if path.startswith("model.layers."):
            _, _, layer, path = path.split(".", 3)
            place = f"blk.{layer}."
        module = NAMES[path]
        array = reference.permuted(array, MODEL.config[HEADS[module]]) if module in HEADS else array
        tensors[f"{place}{module}.weight"] = array
    return tensors


def write_gguf(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **more: Any) -> Path:
    c = MODEL.config
    keys = {
        "block_count": c["num_hidden_layers"],
        "embedding_length": c["hidden_size"],
        "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": c["num_key_value_heads"],
        "expert_count": c["num_local_experts"],
        "expert_used_count": c["num_experts_per_tok"],
    }
    metadata = {f"llama.{key}": ("u32", value) for key, value in keys.items()}
    metadata["llama.rope.freq_base"] = ("f32", c["rope_theta"])
    metadata["llama.attention.layer_norm_rms_epsilon"] = ("f32", c["rms_norm_eps"])
    path.write_bytes(files.gguf(files.llama_metadata(**metadata | more), tensors))
    return path


def in_floats(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", array.shape, array.tobytes()


def test_a_gguf_file_gives_the_logits_of_the_reference(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {name: in_floats(array) for name, array in gguf_tensors().items()})
    golden = np.load(GOLDEN)
    want = golden["hf_logits"]
    got = load(path, kv="f32").logits(golden["tokens"])
    assert np.abs(got - want).max() <= BOUND * want.std()
    with open_checkpoint(path) as checkpoint:
        facts = describe(checkpoint)
    tensors = hf_tensors(MODEL)
    assert facts["parameters"] == sum(array.size for array in tensors.values())
    experts = sum(array.size for name, array in tensors.items() if ".experts." in name)
    assert facts["parts"]["experts"]["parameters"] == experts
    assert facts["parameters_per_token"] == facts["parameters"] - experts * 3 // 5


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_experts_in_blocks_are_their_values(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(5)
    size, values = reference.SIZES[kind]
    blocks, exact = {}, {}
    for name, array in gguf_tensors().items():
        blocks[name] = exact[name] = in_floats(array)
        if "_exps" in name:
            data = files.blocks(rng, kind, size, (25, array.shape[-1] // values * size))
            # Scales of random blocks are of any size; these keep the activations in range.
            data.reshape(-1, size)[:, : 4 if kind == "Q4_1" else 2].view(np.float16)[...] = 1e-3
            which = np.arange(array.size // array.shape[-1]) % len(data)  # another row first in each expert
            blocks[name] = (kind, array.shape, data[which].tobytes())
            rows = reference.dequantize(reference.Weight(data, kind))
            exact[name] = in_floats(rows[which].reshape(array.shape))
    got, want = (
        load(write_gguf(tmp_path / f"{i}.gguf", tensors), kv="f32").logits(MODEL.tokens()[:24])
        for i, tensors in enumerate((blocks, exact))
    )
    assert np.abs(got - want).max() <= 1e-4 * want.std()


def write(folder: Path, tensors: dict[str, np.ndarray], **changes: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL.config | changes))
    write_shards(folder, tensors, "pt", 1)
    return folder


def test_a_window_is_that_of_all_layers(tmp_path: Path) -> None:
    model = load(write(tmp_path / "model", hf_tensors(MODEL), sliding_window=23))
    assert [layer.mixer.kv_heads.window for layer in model.network.layers] == [23] * 3


def test_refusals(tmp_path: Path) -> None:
    tensors = hf_tensors(MODEL)

    def refused(message: str, tensors: dict[str, np.ndarray] = tensors, **changes: object) -> None:
        folder = write(tmp_path / str(len(list(tmp_path.iterdir()))), tensors, **changes)
        with pytest.raises(FormatError, match=message):
            load(folder)

    path = "model.layers.1.block_sparse_moe."
    refused("rope_theta: expected a base, got None", rope_theta=None)
    refused("num_experts_per_tok: expected at most 5, got 6", num_experts_per_tok=6)
    refused(r"gate.weight': shape: expected \[6, 384\], got \[5, 384\]", num_local_experts=6)
    for name in ("experts.0.w3.weight", "experts.4.w2.weight", "gate.weight"):
        left = {key: array for key, array in tensors.items() if key != path + name}
        refused(f"'{path}{name}': expected a tensor of this name, found none", left)
    wide = tensors | {f"{path}experts.2.w2.weight": np.zeros((384, 193), np.float32)}
    refused(r"experts.2.w2.weight': shape: expected \[384, 192\], got \[384, 193\]", wide)
