"""Writes trained weights as an MLX directory of 4 bits, 8 for the embedding and the two gates of a layer.

python export.py WEIGHTS TOKENIZER_FOLDER OUT      # needs pyturbo installed
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.torch import load_file

from model import PREFIX, Config
from pyturbo import ops
from quantise import GROUP, bits_of

CODES = {np.dtype(np.float32): "F32", np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(np.uint32): "U32"}
ALIGNMENT = 64


def mlx_layout(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gate and up apart, taps last but one, offset norms with the 1 added."""
    out: dict[str, np.ndarray] = {}
    for name, array in weights.items():
        name = name.replace(PREFIX, "language_model.model.")
        if name.endswith("experts.gate_up_proj"):
            stem = name.replace("experts.gate_up_proj", "switch_mlp.")
            out[stem + "gate_proj.weight"], out[stem + "up_proj.weight"] = np.split(array, 2, axis=1)
        elif name.endswith("experts.down_proj"):
            out[name.replace("experts.", "switch_mlp.") + ".weight"] = array
        elif name.endswith("conv1d.weight"):
            out[name] = array.swapaxes(1, 2)
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            out[name] = array + np.float32(1)
        else:
            out[name] = array
    return out


def quantise(tensors: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of the file, and the `quantization` entry of its configuration."""
    out: dict[str, np.ndarray] = {}
    entry: dict[str, Any] = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    for name, array in tensors.items():
        if name.endswith("A_log"):
            out[name] = array
        elif array.ndim == 1 or "conv1d" in name:
            out[name] = array.astype(ml_dtypes.bfloat16)
        else:
            path, bits = name.removesuffix(".weight"), bits_of(name)
            if bits != entry["bits"]:
                entry[path] = {"group_size": GROUP, "bits": bits}
            rounded = np.ascontiguousarray(array.astype(ml_dtypes.bfloat16))
            packed, scales, biases = ops.affine_quantize(rounded, bits=bits, group_size=GROUP)
            out |= {name: packed, f"{path}.scales": scales, f"{path}.biases": biases}
    return out, entry


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Every tensor but the last small ones on a multiple of 64 bytes, so that the file can be mapped."""
    order = sorted(tensors, key=lambda name: (tensors[name].nbytes % ALIGNMENT != 0, name))
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        code = CODES[tensors[name].dtype]
        header[name] = {"dtype": code, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def configuration(quantization: dict[str, Any]) -> dict[str, Any]:
    text = dataclasses.asdict(Config())
    del text["dropout"]
    rope = {"rope_type": "default"} | {n: text.pop(n) for n in ("rope_theta", "partial_rotary_factor")}
    text |= {"model_type": "qwen3_5_moe_text", "hidden_act": "silu", "attn_output_gate": True}
    text |= {"attention_bias": False, "tie_word_embeddings": True, "rope_parameters": rope, "eos_token_id": 0}
    return {
        "model_type": "qwen3_5_moe",
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "tie_word_embeddings": True,
        "text_config": text,
        "quantization": quantization,
        "quantization_config": quantization,
    }


def main() -> None:
    weights, tokenizer, out = map(Path, sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    floats = {name: tensor.float().numpy() for name, tensor in load_file(weights).items()}
    tensors, quantization = quantise(mlx_layout(floats))
    write_safetensors(out / "model.safetensors", tensors)
    (out / "config.json").write_text(json.dumps(configuration(quantization), indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, out / name)


if __name__ == "__main__":
    main()
