"""Checks that pyturbo's conversion equals ``mlx_lm.convert -q`` tensor for tensor, on the tiny models.

    PYTHONPATH=tests python tests/oracle/check_convert.py

Each model is converted from float32, bfloat16 and float16 files, at several bits and group sizes and in every
mode, with and without a type asked for. Tensors must have the same bits; configurations the same entries.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import mlx.core as mx
import mlx_lm.utils
import numpy as np
from mlx_lm.convert import convert as mlx_convert

from pyturbo.convert import convert
from tiny_configs import MODELS, TinyModel
from tiny_models import hf_tensors
from write_safetensors import write_shards

#: Type of the files, type asked for, bits, group size, mode.
CASES = (
    (np.float32, None, 4, 64, "affine"),
    (ml_dtypes.bfloat16, None, 4, 64, "affine"),
    (ml_dtypes.bfloat16, "bfloat16", 8, 32, "affine"),
    (np.float16, "bfloat16", 3, 64, "affine"),
    (np.float32, "float16", 6, 128, "affine"),
    (np.float16, "float32", 2, 32, "affine"),
    (ml_dtypes.bfloat16, "float16", 5, 64, "affine"),
    (ml_dtypes.bfloat16, None, 4, 32, "mxfp4"),
    (np.float32, "bfloat16", 8, 32, "mxfp8"),
    (np.float16, "float32", 4, 16, "nvfp4"),
)
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", None: None}


def write(model: TinyModel, folder: Path, dtype: type) -> None:
    """As published: the decay of Qwen3.5 is float32 whatever the others are; the type is in the config."""
    folder.mkdir()
    config = dict(model.config)
    name = np.dtype(dtype).name
    if "text_config" in config:
        config["text_config"] = config["text_config"] | {"dtype": name}
        config["text_config"].pop("torch_dtype", None)
    else:
        config["torch_dtype"] = name
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        key: array if key.endswith("A_log") and "text_config" in config else array.astype(dtype)
        for key, array in hf_tensors(model).items()
    }
    write_shards(folder, tensors, "pt", model.hf_shards)


def tensors(folder: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        for name, value in mx.load(str(path)).items():
            found[name] = np.array(value.view(mx.uint16) if value.dtype == mx.bfloat16 else value)
    return found


def problems(ours: Path, theirs: Path) -> list[str]:
    mine, want = tensors(ours), tensors(theirs)
    found = [f"{name}: only one has it" for name in sorted(mine.keys() ^ want.keys())]
    for name in mine.keys() & want.keys():
        a, b = mine[name], want[name]
        if (a.dtype, a.shape) != (b.dtype, b.shape) or a.tobytes() != b.tobytes():
            found.append(f"{name}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape} with the same bits")
    configs = [json.loads((folder / "config.json").read_text()) for folder in (ours, theirs)]
    for key in sorted(configs[0].keys() | configs[1].keys()):
        # mlx_lm renames an entry of rope_parameters in place while it loads the model.
        if key != "text_config" and configs[0].get(key) != configs[1].get(key):
            found.append(f"config.json: {key}: {configs[0].get(key)}, expected {configs[1].get(key)}")
    return found


def main() -> None:
    mx.set_default_device(mx.cpu)
    # No tokenizer belongs to the tiny models.
    mlx_lm.utils.load_tokenizer = lambda *args, **kwargs: NoTokenizer()
    mlx_lm.utils.create_model_card = lambda *args, **kwargs: None
    failed = 0
    for model in (model for model in MODELS.values() if "hf" in model.mlx_lm):
        for dtype, asked, bits, group_size, mode in CASES:
            with tempfile.TemporaryDirectory() as folder:
                source, ours, theirs = (Path(folder) / name for name in ("hf", "ours", "theirs"))
                write(model, source, dtype)
                convert(source, ours, bits, group_size, SHORT[asked], mode=mode)
                with contextlib.redirect_stdout(io.StringIO()):
                    asks = {"q_group_size": group_size, "q_bits": bits, "q_mode": mode}
                    mlx_convert(str(source), str(theirs), True, **asks, dtype=asked)
                found = problems(ours, theirs)
            form = f"{mode}, {bits} bits in groups of {group_size}"
            case = f"{model.name} {np.dtype(dtype).name} as {asked}, {form}"
            print(f"{'ok' if not found else 'DIFFERS':8}{case}", *found[:5], sep="\n    ", flush=True)
            failed += bool(found)
    sys.exit(bool(failed))


class NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        pass


if __name__ == "__main__":
    main()
