"""Directories: shards and their index, config.json, and what they say about the tokenizer."""

import json
import logging

import numpy as np
import pytest

from checkpoint.files import entry, safetensors
from pyturbo.checkpoint import open_checkpoint
from pyturbo.errors import FileError, FormatError

INDEX = "model.safetensors.index.json"


def write(folder, files, config=None):
    """`files`: name -> bytes, or an object for JSON."""
    for name, content in ({"config.json": config or {"model_type": "llama"}} | files).items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def shard(*names):
    header = {name: entry("F32", [2], 8 * i, 8 * i + 8) for i, name in enumerate(names)}
    return safetensors(header, np.arange(2 * len(names), dtype=np.float32).tobytes())


def indexed(weight_map, **shards):
    return {INDEX: {"weight_map": weight_map}} | {
        f"{name}.safetensors": data for name, data in shards.items()
    }


def test_single_file(tmp_path):
    with open_checkpoint(write(tmp_path, {"model.safetensors": shard("a", "b")})) as checkpoint:
        assert list(checkpoint) == ["a", "b"]
        np.testing.assert_array_equal(checkpoint.read("b"), [2, 3])
        assert checkpoint["a"].shape == (2,)
        assert checkpoint["a"].dtype == "F32"
        with pytest.raises(FormatError, match="expected a tensor 'c', found none"):
            checkpoint.read("c")


def test_shards_with_an_index(tmp_path, caplog):
    files = indexed({"b": "y.safetensors", "a": "x.safetensors"}, x=shard("a", "extra"), y=shard("b"))
    with caplog.at_level(logging.WARNING):
        checkpoint = open_checkpoint(write(tmp_path, files))
    assert list(checkpoint) == ["a", "b"]
    assert "'extra': is not in the index" in caplog.text
    calls = []
    arrays = checkpoint.read_all(["b", "a"], progress=lambda done, total: calls.append((done, total)))
    assert list(arrays) == ["a", "b"]  # in the order of the files
    assert calls == [(8, 16), (16, 16)]


def test_shards_without_an_index(tmp_path):
    write(tmp_path, {"model-1-of-2.safetensors": shard("a"), "model-2-of-2.safetensors": shard("b")})
    assert set(open_checkpoint(tmp_path)) == {"a", "b"}
    (tmp_path / "model-1-of-2.safetensors").unlink()
    with pytest.raises(FormatError, match="expected all shards 1 to 2"):
        open_checkpoint(tmp_path)


WRONG = {
    "no tensors": ({}, "expected model\\*.safetensors"),
    "one tensor in two files": (
        {"model-a.safetensors": shard("t"), "model-b.safetensors": shard("t")},
        "'t': is in model-a.safetensors too",
    ),
    "shard missing": (indexed({"t": "x.safetensors"}), "'t': expected a file 'x.safetensors', found none"),
    "tensor missing": (
        indexed({"t": "x.safetensors"}, x=shard("u")),
        "x.safetensors: 't': expected this tensor",
    ),
    "tensor in another shard": (
        indexed(
            {"t": "x.safetensors", "u": "x.safetensors", "v": "y.safetensors"},
            x=shard("t"),
            y=shard("u", "v"),
        ),
        "x.safetensors: 'u': expected this tensor of the index",
    ),
    "truncated shard": (
        indexed({"t": "x.safetensors"}, x=shard("t")[:-1]),
        "x.safetensors: 't': data_offsets",
    ),
    "index of itself": (indexed({"t": INDEX}), "'t': expected the name of a shard"),
    "shard above": (indexed({"t": "../x.safetensors"}), "'t': expected the name of a shard"),
    "absolute shard": (indexed({"t": "/etc/x.safetensors"}), "'t': expected the name of a shard"),
    "name not text": (indexed({"t": 3}), "'t': expected the name of a shard"),
    "name with NUL": (indexed({"t": "x\0.safetensors"}), "found none"),
    "no map": ({INDEX: {}}, "weight_map"),
    "map a list": ({INDEX: {"weight_map": ["t"]}}, "weight_map"),
    "index not JSON": ({INDEX: b"{"}, "not valid JSON"),
    "duplicate in the index": ({INDEX: b'{"weight_map": {"t": "x", "t": "y"}}'}, "duplicate key 't'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_shards(tmp_path, case):
    files, message = WRONG[case]
    with pytest.raises(FormatError, match=message):
        open_checkpoint(write(tmp_path, files))


def test_cyclic_links(tmp_path):
    write(tmp_path, indexed({"t": "x.safetensors"}))
    (tmp_path / "x.safetensors").symlink_to("y.safetensors")
    (tmp_path / "y.safetensors").symlink_to("x.safetensors")
    with pytest.raises(FormatError, match="x.safetensors: cannot be opened"):
        open_checkpoint(tmp_path)


def test_places_that_are_no_checkpoint(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(FormatError, match="config.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"GGUF")
    with pytest.raises(FormatError, match="or a .gguf file"):
        open_checkpoint(tmp_path / "x.bin")


BAD_CONFIGS = {
    "NaN": (b'{"model_type": "llama", "eps": NaN}', "NaN is not a number"),
    "infinity": (b'{"model_type": "llama", "eps": -Infinity}', "-Infinity is not a number"),
    "out of range": (b'{"model_type": "llama", "eps": 1e999}', "out of range"),
    "list": (b"[]", "expected a JSON object"),
    "no type": (b"{}", "model_type"),
    "type a number": (b'{"model_type": 3}', "model_type"),
    "text_config a list": (b'{"model_type": "x", "text_config": [1]}', "text_config"),
    "quantization a list": (b'{"model_type": "x", "quantization": [4]}', "quantization: expected an object"),
    "bits": (b'{"model_type": "x", "quantization": {"bits": "4"}}', "quantization: bits"),
    "bits of a path": (
        b'{"model_type": "x", "quantization": {"lm_head": {"bits": -1}}}',
        "quantization: 'lm_head': bits",
    ),
    "mode": (b'{"model_type": "x", "quantization": {"mode": "int3"}}', "quantization: mode"),
    "foreign": (
        b'{"model_type": "x", "quantization_config": {"quant_method": "gptq"}}',
        "quant_method 'gptq' is not supported",
    ),
    "eos": (b'{"model_type": "x", "eos_token_id": "</s>"}', "eos_token_id"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_config(tmp_path, case):
    config, message = BAD_CONFIGS[case]
    write(tmp_path, {"model.safetensors": shard("t"), "config.json": config})
    with pytest.raises(FormatError, match=message):
        open_checkpoint(tmp_path)


def test_text_config_is_flattened(tmp_path):
    text = {"model_type": "qwen3_5_moe_text", "hidden_size": 8, "tie_word_embeddings": True}
    config = {
        "model_type": "qwen3_5_moe",
        "hidden_size": 9,
        "text_config": text,
        "vision_config": {"hidden_size": 7},
        "eos_token_id": 1,
    }
    config = open_checkpoint(write(tmp_path, {"model.safetensors": shard("t")}, config)).config
    assert config == {
        "model_type": "qwen3_5_moe",
        "hidden_size": 8,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
    }


def test_a_text_model_alone_has_the_type_of_the_whole(tmp_path):
    write(tmp_path, {"model.safetensors": shard("t")}, {"model_type": "qwen3_5_moe_text"})
    assert open_checkpoint(tmp_path).config["model_type"] == "qwen3_5_moe"


class TestTokenizer:
    def source(self, tmp_path, files, **config):
        write(tmp_path, {"model.safetensors": shard("t")} | files, {"model_type": "llama"} | config)
        return open_checkpoint(tmp_path).tokenizer

    def test_nothing(self, tmp_path):
        source = self.source(tmp_path, {})
        assert (source.kind, source.path, source.chat_template) == ("huggingface", None, None)
        assert (source.bos_id, source.eos_ids) == (None, ())

    def test_ids_of_the_generation_config_come_first(self, tmp_path):
        source = self.source(
            tmp_path,
            {"generation_config.json": {"eos_token_id": [5, 6]}, "tokenizer.json": {}},
            eos_token_id=1,
            bos_token_id=2,
        )
        assert (source.bos_id, source.eos_ids) == (2, (5, 6))
        assert source.path == tmp_path / "tokenizer.json"

    def test_template_files(self, tmp_path):
        named = [{"name": ["x"]}, {"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
        files = {"tokenizer_config.json": {"chat_template": named, "bos_token": "<s>"}}
        source = self.source(tmp_path, files)
        assert source.chat_template == "D"
        assert source.settings["bos_token"] == "<s>"
        files["chat_template.json"] = {"chat_template": "J"}
        assert self.source(tmp_path, files).chat_template == "J"
        files["chat_template.jinja"] = "é".encode()
        assert self.source(tmp_path, files).chat_template == "é"
        files["chat_template.jinja"] = b"\xff"
        with pytest.raises(FormatError, match="chat_template.jinja: expected UTF-8"):
            self.source(tmp_path, files)

    def test_template_of_another_type(self, tmp_path):
        with pytest.raises(FormatError, match="chat_template: expected text"):
            self.source(tmp_path, {"tokenizer_config.json": {"chat_template": 3}})
