"""What tests/models/test_parity.py does not see of deepseek_v3: other forms of its files, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyturbo import ops
from pyturbo.checkpoint import open_checkpoint
from pyturbo.convert import convert
from pyturbo.errors import FormatError
from pyturbo.model import load
from reference.affine import Weight, dequantize
from tiny_configs import MODELS, TinyModel
from tiny_models import TYPES, hf_tensors, mlx_tensors, write_hf
from write_safetensors import write_shards

NAMES = ("deepseek_v3", "deepseek_v3_plain")


def write(folder: Path, config: dict[str, object], tensors: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_shards(folder, tensors, "mlx", 1)
    return folder


def with_kv_b(model: TinyModel, *, quantised: bool) -> dict[str, np.ndarray]:
    """The tensors of the MLX directory with kv_b_proj as older conversions have it; plain: its values."""
    tensors = {
        k: v for k, v in mlx_tensors(model)[0].items() if ".embed_q." not in k and ".unembed_out." not in k
    }
    for name, array in hf_tensors(model).items():
        if name.endswith("kv_b_proj.weight"):
            path, form = name.removesuffix(".weight"), (model.bits, model.group_size)
            packed, scales, biases = ops.affine_quantize(array.astype(TYPES[model.dtype]), *form)
            if quantised:
                tensors |= {name: packed, f"{path}.scales": scales, f"{path}.biases": biases}
            else:
                tensors[name] = dequantize(Weight(packed, scales, biases, *form)).astype(np.float32)
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_a_quantised_kv_b_is_used_as_it_is(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    config = model.config | {"quantization": mlx_tensors(model)[1]}
    got, want = (
        load(write(tmp_path / str(q), config, with_kv_b(model, quantised=q)), kv="f32").logits(model.tokens())
        for q in (True, False)
    )
    assert np.abs(got - want).max() <= 1e-4 * want.std()


def test_a_conversion_keeps_kv_b_and_an_exact_router(tmp_path: Path) -> None:
    model = MODELS["deepseek_v3"]
    source = write_hf(model, tmp_path / "hf")
    convert(source, tmp_path / "mlx", model.bits, model.group_size, "bf16")
    with open_checkpoint(tmp_path / "mlx") as written:
        want = with_kv_b(model, quantised=True)
        assert written.keys() == want.keys()
        for name, array in want.items():
            if name.endswith("e_score_correction_bias"):
                array = hf_tensors(model)[name]
            assert written.read(name).tobytes() == array.tobytes(), name
    load(tmp_path / "mlx").logits([1, 2])


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    model = MODELS["deepseek_v3_plain"]
    config = model.config | {"num_nextn_predict_layers": 1}
    extra = {"model.layers.2.eh_proj.weight": np.zeros((128, 256), np.float32)}
    load(write(tmp_path / "one", config, hf_tensors(model) | extra))
    beyond = {"model.layers.3.eh_proj.weight": np.zeros((128, 256), np.float32)}
    with pytest.raises(FormatError, match="found 1 others: 'model.layers.3.eh_proj.weight'"):
        load(write(tmp_path / "two", config, hf_tensors(model) | beyond))


def test_refusals(tmp_path: Path) -> None:
    path = write_hf(MODELS["deepseek_v3"], tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    for message, changes in (
        ("scoring_func: expected sigmoid, got 'softmax'", {"scoring_func": "softmax"}),
        ("topk_method: expected noaux_tc or greedy, got 'odd'", {"topk_method": "odd"}),
        ("n_group: expected 1 beside choices by scores alone, got 4", {"topk_method": "greedy"}),
        ("n_group: expected a divisor of 12 up to 32, got 5", {"n_group": 5}),
        ("topk_group: expected groups that hold 3 experts, at most 4, got 5", {"topk_group": 5}),
        ("topk_group: expected groups that hold 7 experts", {"num_experts_per_tok": 7}),
        ("kv_lora_rank: expected a multiple of 8 up to 512, got 132", {"kv_lora_rank": 132}),
        ("qk_rope_head_dim: expected a multiple of 8 up to 64, got 72", {"qk_rope_head_dim": 72}),
        ("first_k_dense_replace: expected a count, got None", {"first_k_dense_replace": None}),
    ):
        (path / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(FormatError, match=message):
            load(path)
