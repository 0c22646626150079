"""The memory that ``pyturbo info`` tells, from headers alone, against what loading takes, in every format.

Bytes are compared exactly. The peak is measured in a process of its own, on files of some tens of megabytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pyturbo
import random_gguf
from pyturbo.checkpoint import open_checkpoint
from pyturbo.convert import convert
from pyturbo.describe import describe, network_arrays
from reference import gguf as reference
from tiny_configs import FP_MODELS, MODELS
from tiny_models import hf_tensors, write_hf, write_mlx
from write_safetensors import write_safetensors

FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def facts(path: Path) -> dict:
    with open_checkpoint(path) as checkpoint:
        return describe(checkpoint)


def check(path: Path) -> dict:
    """What info tells of a checkpoint, which is what loading it takes."""
    told = facts(path)
    model = pyturbo.load(path)
    loaded = list(network_arrays(model.network))
    mapped = sum(array.nbytes for array in loaded if not array.flags.writeable)
    assert told["mapped_bytes"] == mapped
    assert told["copied_bytes"] == sum(array.nbytes for array in loaded) - mapped
    assert told["bytes"] == told["mapped_bytes"] + told["copied_bytes"]
    assert told["bytes"] == sum(part["nbytes"] for part in told["parts"].values())
    assert told["bytes"] == model.session(16).memory().weights
    assert told["peak_bytes"] >= told["copied_bytes"]
    return told


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", [*reference.SIZES, *FLOATS])
def test_gguf_of_one_type(kind: str, architecture: str, tmp_path: Path) -> None:
    told = check(random_gguf.write(tmp_path / "x.gguf", random_gguf.only(kind), architecture=architecture))
    assert told["formats"].keys() == {kind, "F32"}


@pytest.mark.parametrize("alignment", [8, 32])
@pytest.mark.parametrize("tied", [False, True])
def test_gguf_of_mixed_types(tied: bool, alignment: int, tmp_path: Path) -> None:
    path = random_gguf.write(tmp_path / "x.gguf", random_gguf.q4_k_m, alignment=alignment, tied=tied)
    told = check(path)
    assert {"Q4_K", "F32"} <= told["formats"].keys()
    assert told["bytes"] - told["file_bytes"] < 1000  # the tables of rotary frequencies
    if alignment == 32:
        assert told["copied_bytes"] < 1000  # all weights are the mapped file


@pytest.mark.parametrize("write", [write_hf, write_mlx], ids=["hf", "mlx"])
@pytest.mark.parametrize("name", MODELS)
def test_directories(name: str, write: Callable, tmp_path: Path) -> None:
    check(write(MODELS[name], tmp_path))


@pytest.mark.parametrize("name", FP_MODELS)
def test_small_floats(name: str, tmp_path: Path) -> None:
    check(write_mlx(FP_MODELS[name], tmp_path))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_affine(name: str, bits: int, dtype: str, tmp_path: Path) -> None:
    """Files whose tensors are aligned: nearly all is mapped."""
    source = write_hf(MODELS[name], tmp_path / "hf")
    told = check(convert(source, tmp_path / "mlx", bits, 64, dtype).path)
    assert told["copied_bytes"] < 0.05 * told["bytes"]


@pytest.mark.parametrize("dtype", FLOATS.values())
@pytest.mark.parametrize("name", ["qwen2", "qwen3_next", "gpt_oss", "deepseek_v3"])
def test_floats(name: str, dtype: str, tmp_path: Path) -> None:
    model = MODELS[name]
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    kind = np.dtype(dtype) if dtype != "bfloat16" else pyturbo._dtypes.bfloat16
    tensors = {key: array.astype(kind) for key, array in hf_tensors(model).items()}
    write_safetensors(tmp_path / "model.safetensors", tensors, "pt")
    check(tmp_path)


MEASURE = """
import sys
import pyturbo

def memory(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))

pyturbo.load(sys.argv[1])
before = memory("VmRSS")
model = pyturbo.load(sys.argv[2])
print(memory("VmHWM") - before)
"""

SIZES = random_gguf.Sizes(hidden=1024, inner=2816, layers=4, heads=16, kv_heads=4, vocab=8192)

#: Sizes that make tens of megabytes of a tiny model.
LARGER = {
    "qwen3_moe": {"hidden_size": 512, "moe_intermediate_size": 256, "num_experts": 16},
    "qwen3_next": {"hidden_size": 1024, "linear_num_key_heads": 8, "linear_num_value_heads": 16},
    "gpt_oss": {"hidden_size": 512, "intermediate_size": 256, "num_local_experts": 12},
    "llama": {"hidden_size": 768, "intermediate_size": 3072},
}

measured = pytest.mark.skipif(
    not Path("/proc/self/status").exists() or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the peak is what Linux measures, without the memory of a sanitizer",
)


def check_peak(small: Path, path: Path) -> dict:
    """Compares the peak within a twelfth, or 4 MB: an allocation is whole pages of 2 MB, and Python takes
    some for itself. Loading `small` first takes what is needed once for all models."""
    told = facts(path)
    command = [sys.executable, "-c", MEASURE, str(small), str(path)]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=path.parent).stdout)
    assert grown == pytest.approx(told["peak_bytes"], rel=1 / 12, abs=4e6)
    return told


@pytest.mark.slow
@measured
@pytest.mark.parametrize("kind", ["Q4_K_M", "Q8_0", "F16"])
def test_the_peak_of_gguf_files(kind: str, tmp_path: Path) -> None:
    mixture = random_gguf.q4_k_m if kind == "Q4_K_M" else random_gguf.only(kind)
    small = random_gguf.write(tmp_path / "small.gguf", mixture)
    told = check_peak(small, random_gguf.write(tmp_path / "x.gguf", mixture, SIZES))
    assert told["peak_bytes"] < 1e5


@pytest.mark.slow
@measured
@pytest.mark.parametrize(
    ("name", "write"),
    [("qwen3_moe", write_hf), ("qwen3_next", write_hf), ("gpt_oss", write_hf), ("llama", write_mlx)],
)
def test_the_peak_of_directories(name: str, write: Callable, tmp_path: Path) -> None:
    """Experts put into stacks, rows in another order, tensors that are not aligned."""
    model = MODELS[name]
    larger = replace(model, config=model.config | LARGER[name])
    told = check_peak(write(model, tmp_path / "small"), write(larger, tmp_path / "larger"))
    assert told["copied_bytes"] > 1.5e7
