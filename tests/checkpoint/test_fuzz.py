"""Damaged files of all kinds: whatever the bytes, what is raised is an exception of pyturbo.

Each example takes a good file and changes, cuts, repeats or inserts bytes; everything that opens is read.
PYTURBO_FUZZ_EXAMPLES sets their number for a long run.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import files
from pyturbo import ops
from pyturbo.checkpoint import open_checkpoint
from pyturbo.errors import TurboError
from reference import gguf as reference
from write_safetensors import write_shards

EXAMPLES = int(os.environ.get("PYTURBO_FUZZ_EXAMPLES", "150"))

fuzzing = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip

#: Numbers that counts, sizes and offsets go wrong at.
EDGES = st.sampled_from(
    [
        0,
        1,
        7,
        8,
        9,
        31,
        32,
        127,
        255,
        *(2**n - lower for n in (16, 31, 32, 62, 63) for lower in (0, 1)),
        2**64 - 1,
    ]
)

change = st.one_of(
    st.tuples(st.just("byte"), st.integers(0, 1 << 16), st.integers(0, 255)),
    st.tuples(st.just("u32"), st.integers(0, 1 << 16), EDGES),
    st.tuples(st.just("u64"), st.integers(0, 1 << 16), EDGES),
    st.tuples(st.just("cut"), st.integers(0, 1 << 16), st.integers(1, 64)),
    st.tuples(st.just("end"), st.integers(0, 1 << 16), st.just(0)),
    st.tuples(st.just("repeat"), st.integers(0, 1 << 16), st.integers(1, 64)),
    st.tuples(st.just("insert"), st.integers(0, 1 << 16), st.binary(max_size=20)),
)


def damaged(content, changes):
    data = bytearray(content)
    for kind, where, what in changes:
        at = where % (len(data) + 1)
        if kind == "byte":
            data[at : at + 1] = bytes([what])
        elif kind in ("u32", "u64"):
            size = int(kind[1:]) // 8
            data[at : at + size] = (what % 2 ** (8 * size)).to_bytes(size, "little")
        elif kind == "cut":
            del data[at : at + what]
        elif kind == "end":
            del data[at:]
        elif kind == "repeat":
            data[at:at] = data[at : at + what]
        else:
            data[at:at] = what
    return bytes(data)


def use(path):
    """Opens and reads everything in every way; only exceptions of pyturbo may come out."""
    try:
        checkpoint = open_checkpoint(path)
        view = checkpoint.weights()
    except TurboError as error:
        check(error, path)
        return
    for array in checkpoint.read_all().values():
        array.tobytes()
    for name in list(view.unused()):
        for call in (view.tensor, view.linear, view.experts):
            asked = name if call == view.tensor else name.rpartition(".")[0]
            try:
                call(asked, None)
                call(asked, (3, 64))
            except TurboError as error:
                check(error, checkpoint.path)


def check(error, path):
    """The message names the file and is short."""
    assert str(path) in str(error)
    assert len(str(error)) < 2000


def run(content, names):
    with tempfile.TemporaryDirectory() as folder:
        for name, data in content.items():
            (Path(folder) / name).write_bytes(data)
        use(Path(folder) / names if names else Path(folder))


def good_directory():
    rng = np.random.default_rng(0)
    packed, scales, biases = ops.affine_quantize(rng.standard_normal((3, 64), np.float32), 4, 32)
    tensors = {
        "lm_head.weight": packed, "lm_head.scales": scales, "lm_head.biases": biases,
        "model.layers.0.linear_attn.conv1d.weight": np.ones((3, 1, 4), np.float32),
        "model.layers.0.mlp.experts.gate_up_proj": np.ones((2, 4, 3), np.float16),
        "model.layers.0.mlp.experts.0.down_proj.weight": np.ones((4, 3), np.float16),
        "model.norm.weight": np.ones(3, np.float32),
    }  # fmt: skip
    config = {
        "model_type": "qwen3_next", "eos_token_id": [1, 2], "tie_word_embeddings": False,
        "quantization": {"bits": 4, "group_size": 32, "lm_head": {"bits": 4, "group_size": None}, "x": False},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), tensors, "mlx", 2)
        content = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    content["config.json"] = json.dumps(config).encode()
    content["generation_config.json"] = b'{"eos_token_id": 2}'
    content["tokenizer_config.json"] = b'{"chat_template": [{"name": "default", "template": "x"}]}'
    return content


def good_gguf():
    rng = np.random.default_rng(1)
    tensors = {
        "output_norm.weight": ("F32", (64,), bytes(256)),
        "rope_freqs.weight": ("F32", (8,), b"\0\0\x80?" * 8),
    }
    for i, (kind, (size, values)) in enumerate(reference.SIZES.items()):
        name = ("token_embd", "blk.0.attn_q", "blk.0.attn_k", "output", "blk.0.ffn_up", "blk.1.attn_q")[i % 6]
        data = files.blocks(rng, kind, size, (8, size)).tobytes()
        tensors[f"{name}.weight" if i < 6 else f"blk.{i}.ffn_up.weight"] = (kind, (8, values), data)
    return files.gguf(files.llama_metadata(), tensors)


DIRECTORY, GGUF = good_directory(), good_gguf()
HEADERS = {  # where most of what can go wrong is
    name: int.from_bytes(data[:8], "little")
    for name, data in DIRECTORY.items()
    if name.endswith(".safetensors")
}


def test_the_good_files_are_good(tmp_path):
    (tmp_path / "x.gguf").write_bytes(GGUF)
    assert len(open_checkpoint(tmp_path / "x.gguf")) == 15
    for name, data in DIRECTORY.items():
        (tmp_path / name).write_bytes(data)
    assert len(open_checkpoint(tmp_path)) == 7


@pytest.mark.parametrize("name", sorted(DIRECTORY))
@fuzzing
@given(changes=st.lists(change, min_size=1, max_size=4))
def test_directory(name, changes):
    run(DIRECTORY | {name: damaged(DIRECTORY[name], changes)}, None)


@pytest.mark.parametrize("name", sorted(HEADERS))
@fuzzing
@given(changes=st.lists(change, min_size=1, max_size=3))
def test_safetensors_header(name, changes):
    """The header alone is damaged, and its length is right."""
    data, length = DIRECTORY[name], HEADERS[name]
    header = damaged(data[8 : 8 + length], changes)
    run(DIRECTORY | {name: files.safetensors(header, data[8 + length :])}, None)


json_keys = st.text(max_size=5) | st.sampled_from(["dtype", "shape", "data_offsets", "bits", "group_size"])
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2**65), st.floats(), st.text(max_size=8),
              st.sampled_from(["F32", "U32", "model-00001-of-00002.safetensors", "mxfp4"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_keys, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in DIRECTORY if name.endswith(".json")))
@fuzzing
@given(key=st.integers(0, 9), value=json_values)
def test_json_of_other_types(name, key, value):
    content = json.loads(DIRECTORY[name])
    content[sorted(content)[key % len(content)]] = value
    run(DIRECTORY | {name: json.dumps(content).encode()}, None)


@pytest.mark.slow
@fuzzing
@given(
    which=st.integers(0, 9),
    field=st.sampled_from(["dtype", "shape", "data_offsets", None]),
    value=json_values,
)
def test_safetensors_entries_of_other_types(which, field, value):
    name = sorted(HEADERS)[which % 2]
    data, length = DIRECTORY[name], HEADERS[name]
    header = json.loads(data[8 : 8 + length])
    tensor = sorted(header)[which % len(header)]
    if field is None:
        header[tensor] = value
    else:
        header[tensor][field] = value
    run(DIRECTORY | {name: files.safetensors(json.dumps(header).encode(), data[8 + length :])}, None)


@pytest.mark.slow
@fuzzing
@given(changes=st.lists(change, min_size=1, max_size=4))
def test_gguf(changes):
    run({"x.gguf": damaged(GGUF, changes)}, "x.gguf")


@fuzzing
@given(content=st.binary(max_size=400))
def test_any_bytes(content):
    run({"x.gguf": b"GGUF\3\0\0\0" + content}, "x.gguf")
    run({"config.json": b'{"model_type": "llama"}', "model.safetensors": content}, None)
    run({"config.json": content, "model.safetensors": content}, None)
