"""Configurations with hostile entries: whatever a small file says, the answer is quick, small and ours.

Entries take hostile values one at a time, in a process whose memory and time are limited. What comes of it is
a model that runs, or an exception of pyturbo. PYTURBO_HOSTILE=all tries every value in every entry, else a
sample.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
import random_gguf
from checkpoint import files
from pyturbo.cli import main
from pyturbo.convert import convert
from pyturbo.errors import AllocationError, FormatError
from tiny_configs import MODELS
from tiny_models import hf_tensors, write_hf
from write_safetensors import write_safetensors

VALUES: list[Any] = [
    0, -1, 1, 3, 2**31 - 1, 2**31, 2**63, 10**30, 10**400, 0.5, -1e-30, 1e30, 1e300, True, "x", "", [], {},
    [1] * 9, [10**30], {"x": {"y": 1}}, None, ["full_attention"] * 4,
]  # fmt: skip

#: Entries that are tried also where a configuration has none.
OTHERS = (
    "layer_types", "sliding_window", "max_window_layers", "use_sliding_window", "mlp_only_layers",
    "rope_scaling", "rope_parameters", "partial_rotary_factor", "quantization", "quantization_config",
    "bos_token_id", "eos_token_id", "num_nextn_predict_layers", "decoder_sparse_step", "text_config",
)  # fmt: skip

#: Loads each path of its input, after giving config.json the text that comes with it; tells what went wrong.
CHILD = """
import json, resource, signal, sys
from pathlib import Path
import pyturbo
from pyturbo.checkpoint import open_checkpoint
from pyturbo.describe import describe
from pyturbo.errors import FormatError, TurboError

def tell(path):
    with open_checkpoint(path) as checkpoint:
        describe(checkpoint)

def run(path):
    pyturbo.load(path, device="cpu").logits([1, 2])

first, cases = sys.argv[1], json.loads(sys.stdin.read())
run(first)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), -1))
for name, path, text in cases:
    if text is not None:
        (Path(path) / "config.json").write_text(text)
    for what in (tell, run):
        signal.setitimer(signal.ITIMER_PROF, 3)
        try:
            what(path)
        except TurboError as error:
            named = str(path) in str(error) or not isinstance(error, FormatError)
            if len(str(error)) > 1000 or not named:
                print(name, "message", str(error)[:200], flush=True)
        except BaseException as error:
            print(name, type(error).__name__, str(error)[:200], flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
print("done")
"""

limited = pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is that of Linux")


def check(first: Path, cases: list[tuple[str, str, str | None]]) -> None:
    if os.environ.get("PYTURBO_HOSTILE") != "all":
        cases = cases[len(first.name) % 13 :: 13]  # has no divisor in common with the numbers of values
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(first)],
        input=json.dumps(cases), capture_output=True, text=True, cwd=first.parent, check=False,
    )  # fmt: skip
    assert ran.stdout == "done\n", ran.stdout + ran.stderr


def entries(config: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in config.items():
        found.append((*path, name))
        if isinstance(value, dict):
            found += entries(value, (*path, name))
    return found


def changed(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    inner = changed(config[path[0]], path[1:], value) if len(path) > 1 else value
    return config | {path[0]: inner}


@pytest.mark.slow
@limited
@pytest.mark.parametrize("name", MODELS)
def test_every_entry(name: str, tmp_path: Path) -> None:
    folder, config = write_hf(MODELS[name], tmp_path / name), MODELS[name].config
    paths = [*entries(config), *((name,) for name in OTHERS if name not in config)]
    texts = {(path, i): json.dumps(changed(config, path, v)) for path in paths for i, v in enumerate(VALUES)}
    check(folder, [(f"{path} {VALUES[i]!r:.40}", str(folder), text) for (path, i), text in texts.items()])


@pytest.mark.slow
@limited
def test_every_key_of_a_gguf_file(tmp_path: Path) -> None:
    sizes = random_gguf.Sizes(hidden=64, inner=96, layers=1, vocab=32)
    path = random_gguf.write(tmp_path / "good.gguf", random_gguf.only("Q4_0"), sizes)
    values = [
        ("u32", 0), ("u32", 3), ("u64", 2**31 - 1), ("u64", 2**64 - 1), ("i64", -1), ("f32", float("nan")),
        ("f64", 1e300), ("f32", 0.0), ("bool", 1), ("string", "x"), ("string", ""), (["u32"], []),
        (["u32"], [2**32 - 1] * 3), (["string"], ["x"] * 3), (["f32"], [float("inf")]),
    ]  # fmt: skip
    metadata = random_gguf.metadata(sizes) | {
        f"llama.{key}": ("u32", 1)
        for key in ("vocab_size", "attention.key_length", "rope.dimension_count", "expert_count")
    }
    cases = []
    for i, (key, value) in enumerate((key, value) for key in metadata for value in values):
        other = tmp_path / f"{i}.gguf"
        random_gguf.write(other, random_gguf.only("Q4_0"), sizes, more={key: value})
        cases.append((f"{key} {value}", str(other), None))
    check(path, cases)


@pytest.mark.parametrize("count", [4, 10**8, 2**31 - 1, 2**31])
def test_more_layers_than_the_files_have(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_hf(MODELS["llama"], tmp_path / "model")
    config = MODELS["llama"].config | {"num_hidden_layers": count}
    (folder / "config.json").write_text(json.dumps(config))
    expected = "at most 3, the layers with tensors" if count < 2**31 else "a count below 2147483648"
    message = f"num_hidden_layers: expected {expected}, got {count}"
    with pytest.raises(FormatError, match=message):
        pyturbo.load(folder)
    with pytest.raises(FormatError, match=message):
        convert(folder, tmp_path / "converted")
    assert main(["info", str(folder)]) == 1
    assert message in capsys.readouterr().err


def test_more_blocks_than_a_gguf_file_has(tmp_path: Path) -> None:
    more = {"llama.block_count": ("u32", 10**8)}
    path = random_gguf.write(tmp_path / "x.gguf", random_gguf.only("Q4_0"), more=more)
    message = "llama.block_count: expected at most 2, the layers with tensors, got 100000000"
    with pytest.raises(FormatError, match=message):
        pyturbo.load(path)


def test_a_tensor_with_a_name_of_a_megabyte(tmp_path: Path) -> None:
    model = MODELS["llama"]
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    tensors = hf_tensors(model) | {"\n" * (1 << 20): np.ones(1, np.float32)}
    write_safetensors(tmp_path / "model.safetensors", tensors, "pt")
    with pytest.raises(FormatError, match=r"found 1 others: '(\\n)+") as raised:
        pyturbo.load(tmp_path)
    assert len(str(raised.value)) < 1000


def test_rope_factors_of_another_size(tmp_path: Path) -> None:
    """They are not read: a file with holes can have any number of them."""
    tensors = {
        "token_embd.weight": ("F32", (2, 64), bytes(512)),
        "rope_freqs.weight": ("F32", (1 << 20,), bytes(4 << 20)),
    }
    (tmp_path / "x.gguf").write_bytes(files.gguf(files.llama_metadata(), tensors))
    with pytest.raises(
        FormatError, match=r"rope_freqs.weight': expected 8 numbers in F32, .* got \[1048576\]"
    ):
        pyturbo.load(tmp_path / "x.gguf")


def test_a_conversation_beyond_the_memory(tmp_path: Path) -> None:
    folder = write_hf(MODELS["qwen3"], tmp_path / "model")
    config = MODELS["qwen3"].config | {"max_position_embeddings": 2**31 - 1}
    (folder / "config.json").write_text(json.dumps(config))
    model = pyturbo.load(folder)
    assert model.session().context == 8192
    with pytest.raises(
        AllocationError, match=r"context: expected .* memory of this machine, got \d{12,} for 2147483647"
    ):
        model.session(context=2**31 - 1)
    with pytest.raises(
        pyturbo.errors.ArgumentError, match="expected 1 to 2147483647, got 1000000000000000000"
    ):
        model.session(context=10**18)
