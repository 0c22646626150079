"""GGUF files: header, config, tokenizer, names, order of rows, and every way in which they can be wrong."""

import os
import struct

import ml_dtypes
import numpy as np
import pytest

from checkpoint import files
from pyturbo import models
from pyturbo.checkpoint import gguf, open_checkpoint
from pyturbo.errors import FormatError
from pyturbo.formats import Dense, Gguf
from reference import gguf as reference

RNG = np.random.default_rng(11)


def opened(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return open_checkpoint(path)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape, np.float32).astype(dtype)


def plain(array):
    kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[array.dtype.name]
    return kind, array.shape, array.tobytes()


def model(tmp_path, tensors, architecture="llama", **more):
    """`tensors`: arrays, or type, shape and bytes; an embedding is added."""
    stored = {"token_embd.weight": draw(4, 64)} | tensors
    stored = {name: item if isinstance(item, tuple) else plain(item) for name, item in stored.items()}
    return opened(tmp_path, files.gguf(files.llama_metadata(architecture, **more), stored))


class TestHeader:
    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("alignment", [8, 32, 256])
    def test_every_kind_of_value(self, tmp_path, version, alignment):
        metadata = {
            "u8": ("u8", 200), "i8": ("i8", -3), "u16": ("u16", 60000), "i16": ("i16", -300),
            "u32": ("u32", 2**32 - 1), "i32": ("i32", -5), "f32": ("f32", 0.5), "bool": ("bool", 1),
            "u64": ("u64", 2**64 - 1), "i64": ("i64", -(2**63)), "f64": ("f64", 0.1),
            "text": ("string", "grüße"), "texts": (["string"], ["", "a", "ж"]),
            "numbers": (["i16"], [1, -2]), "flags": (["bool"], [0, 1]), "none": (["f32"], []),
            "general.alignment": ("u32", alignment),
        }  # fmt: skip
        a, b = draw(3, 5), draw(7, dtype=np.float16)
        path = tmp_path / "x.gguf"
        path.write_bytes(files.gguf(metadata, {"a": plain(a), "b": plain(b)}, alignment, version))
        header = gguf.read_header(path)
        for key, (_, content) in metadata.items():
            got = header.metadata[key]
            assert (got.tolist() if isinstance(got, np.ndarray) else got) == content
        assert header.metadata["bool"] is True
        for name, want in (("a", a), ("b", b)):
            info = header.tensors[name]
            assert info.offset % alignment == 0
            np.testing.assert_array_equal(
                info.file.read(info.array_dtype, info.array_shape, info.offset), want
            )

    def damaged(self):
        metadata = files.llama_metadata()
        head = b"GGUF" + struct.pack("<I", 3)
        good = files.gguf(metadata, {"token_embd.weight": plain(draw(4, 64))})
        info = files.tensor_info

        def with_infos(*infos, data=bytes(64), count=None):
            start = head + struct.pack("<QQ", len(infos) if count is None else count, 0) + b"".join(infos)
            return start + bytes(-len(start) % 32) + data

        def with_value(value, key="k"):
            return head + struct.pack("<QQ", 0, 1) + files.string(key) + value

        return {
            "empty": (b"", "expected a GGUF file, it is empty"),
            "short": (b"GGU", "magic.*: expected 4 bytes at 0, the file ends at 3: it is cut"),
            "magic": (b"GGML" + good[4:], "expected a GGUF file"),
            "version 1": (b"GGUF\1\0\0\0" + good[8:], "version"),
            "big-endian": (b"GGUF\0\0\0\3" + good[8:], "version: expected 2 or 3, little-endian"),
            "no counts": (head, "number of tensors"),
            "tensor count": (head + struct.pack("<QQ", 2**63, 0), "number of tensors"),
            "metadata count": (head + struct.pack("<QQ", 0, 2**63), "number of metadata entries"),
            "truncated": (good[:-1], "'token_embd.weight': expected 1024 bytes"),
            "truncated header": (good[:200], "expected .* the file ends"),
            "key length": (head + struct.pack("<QQQ", 0, 1, 2**62) + bytes(20), "a metadata key"),
            "key not UTF-8": (with_value(files.value("u8", 1), key=b"\xff"), "a metadata key.*UTF-8"),
            "key twice": (
                head + struct.pack("<QQ", 0, 2) + (files.string("k") + files.value("u8", 1)) * 2 + bytes(9),
                "'k': occurs twice",
            ),
            "kind": (with_value(struct.pack("<IQ", 13, 0)), "'k': expected a kind of value"),
            "text length": (with_value(struct.pack("<IQ", 8, 2**63)), "'k': expected at most"),
            "text not UTF-8": (with_value(files.value("string", b"\xc3")), "'k': expected UTF-8"),
            "boolean": (with_value(files.value("bool", 2)), "'k': expected 0 or 1"),
            "booleans": (with_value(files.value(["bool"], [1, 3])), "'k': expected 0 or 1"),
            "array length": (
                with_value(struct.pack("<IIQ", 9, 4, 2**61)),
                "'k': expected at most .*: the file ends .* bytes after",
            ),
            "array of texts": (with_value(struct.pack("<IIQ", 9, 8, 2**61)), "'k': expected at most"),
            "nested array": (with_value(struct.pack("<IIQ", 9, 9, 1) + bytes(40)), "'k': expected an array"),
            "alignment": (
                files.gguf({"general.alignment": ("u32", 24)}, {"t": plain(draw(8))}, 24),
                "general.alignment",
            ),
            "alignment 0": (files.gguf({"general.alignment": ("u32", 0)}), "general.alignment"),
            "alignment text": (files.gguf({"general.alignment": ("string", "x")}), "general.alignment"),
            "huge alignment": (
                files.gguf({"general.alignment": ("u64", 2**63)}, {"t": plain(draw(8))}),
                "'t': expected 32 bytes",
            ),
            "no axes": (with_infos(info("t", (), 0, 0) + bytes(8)), "'t': expected 1 to 4 axes"),
            "axes": (with_infos(info("t", (1,) * 5, 0, 0)), "'t': expected 1 to 4 axes"),
            "axes 2^32": (with_infos(files.string("t") + b"\xff" * 40), "'t': expected 1 to 4 axes"),
            "empty axis": (with_infos(info("t", (0, 4), 0, 0)), "'t': shape"),
            "size": (with_infos(info("t", (2**63, 2**63, 2**63), 0, 0)), "'t': expected .* bytes"),
            "type": (with_infos(info("t", (4,), 77, 0)), "'t': type number 77 is not supported"),
            "type by name": (with_infos(info("t", (256,), 17, 0)), "'t': type IQ2_XS is not supported"),
            "newest type": (with_infos(info("t", (256,), 41, 0)), "'t': type Q1_0 is not supported"),
            "type after it": (with_infos(info("t", (256,), 42, 0)), "'t': type Q2_0 is not supported"),
            "block": (with_infos(info("t", (2, 48), 2, 0)), "'t': expected rows in Q4_0 blocks of 32"),
            "offset": (with_infos(info("t", (4,), 0, 4)), "'t': offset: expected a multiple of 32"),
            "offset beyond": (with_infos(info("t", (4,), 0, 64)), "'t': expected 16 bytes at"),
            "offset 2^64": (with_infos(info("t", (4,), 0, 2**64 - 32)), "'t': expected 16 bytes at"),
            "overlap": (
                with_infos(info("t", (9,), 0, 0), info("u", (4,), 0, 32)),
                "'u': expected data from byte",
            ),
            "name twice": (with_infos(info("t", (4,), 0, 0), info("t", (4,), 0, 32)), "'t': occurs twice"),
            "fewer tensors": (with_infos(info("t", (4,), 0, 0), count=3, data=bytes(200)), "expected"),
        }  # fmt: skip

    def test_damage_is_named(self, tmp_path):
        for case, (content, message) in self.damaged().items():
            with pytest.raises(FormatError, match=message) as caught:
                opened(tmp_path, content)
            assert "model.gguf" in str(caught.value), case
            assert len(str(caught.value)) < 1000, case

    @pytest.mark.parametrize("item", [("string", b""), (["u8"], [])])
    def test_metadata_of_gigabytes(self, tmp_path, item):
        """A file with holes: the length of a text, or of an array, is within it and taken for no more."""
        data = bytearray(files.gguf({"x": item}))
        end = 4 + 4 + 8 + 8 + 8 + 1 + 4 + (4 if item[0] == ["u8"] else 0)
        data[end : end + 8] = (1 << 34).to_bytes(8, "little")
        path = tmp_path / "x.gguf"
        path.write_bytes(data)
        os.truncate(path, 1 << 36)
        with pytest.raises(FormatError, match=r"'x': expected at most 26843\d{4}, got 17179869184"):
            open_checkpoint(path)

    @pytest.mark.slow
    def test_every_truncation(self, tmp_path):
        good = files.gguf(files.llama_metadata(), {"token_embd.weight": plain(draw(4, 64))})
        for length in range(len(good)):
            with pytest.raises(FormatError):
                opened(tmp_path, good[:length])


class TestConfig:
    def test_names_of_transformers(self, tmp_path):
        config = model(tmp_path, {}).config
        assert config == {
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 96,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 2**-17,
            "rope_theta": 50000.0, "max_position_embeddings": 512, "vocab_size": 4,
            "tie_word_embeddings": True, "rope_interleave": True,
        }  # fmt: skip

    def test_what_a_file_may_say_more(self, tmp_path):
        more = {
            "qwen3.attention.key_length": ("u32", 24), "qwen3.attention.value_length": ("u32", 24),
            "qwen3.rope.dimension_count": ("u32", 12), "qwen3.vocab_size": ("u32", 9),
            "qwen3.rope.scaling.type": ("string", "yarn"), "qwen3.rope.scaling.factor": ("f32", 4.0),
            "qwen3.rope.scaling.original_context_length": ("u32", 128),
            "qwen3.attention.head_count_kv": (["u32"], [2, 2]),
        }  # fmt: skip
        config = model(tmp_path, {"output.weight": draw(9, 64)}, "qwen3", **more).config
        assert (config["head_dim"], config["partial_rotary_factor"], config["vocab_size"]) == (24, 0.5, 9)
        assert (config["tie_word_embeddings"], config["num_key_value_heads"]) == (False, 2)
        assert config["rope_scaling"] == {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        }

    def test_rope_factors(self, tmp_path):
        factors = np.linspace(1, 8, 8, dtype=np.float32)
        scaling = model(tmp_path, {"rope_freqs.weight": factors}).config["rope_scaling"]
        assert scaling["rope_type"] == "longrope"
        assert scaling["short_factor"] == scaling["long_factor"] == factors.tolist()
        assert scaling["attention_factor"] == 1
        with pytest.raises(FormatError, match="rope_freqs.weight': expected positive"):
            _ = model(tmp_path, {"rope_freqs.weight": -factors}).config

    @pytest.mark.parametrize(
        ("key", "item"),
        [
            ("general.architecture", ("string", "a" * 99)),
            ("general.architecture", ("u32", 3)),
            ("split.count", ("u16", 2)),
            ("llama.expert_count", ("i32", -8)),
            ("llama.block_count", ("u32", 0)),
            ("llama.block_count", ("u64", 2**40)),
            ("llama.embedding_length", ("string", "64")),
            ("llama.embedding_length", ("bool", 1)),
            ("llama.attention.head_count", ("i32", -4)),
            ("llama.attention.head_count_kv", (["u32"], [2, 4])),
            ("llama.attention.head_count_kv", (["u32"], [])),
            ("llama.attention.key_length", ("u32", 15)),
            ("llama.attention.value_length", ("u32", 8)),
            ("llama.attention.layer_norm_rms_epsilon", ("f32", float("nan"))),
            ("llama.rope.freq_base", ("f32", float("inf"))),
            ("llama.rope.freq_base", ("f32", 0.0)),
            ("llama.rope.scaling.type", ("string", "odd")),
            ("tokenizer.ggml.tokens", ("string", "a")),
            ("tokenizer.ggml.token_type", (["i32"], [1])),
            ("tokenizer.ggml.scores", (["string"], ["1"])),
            ("tokenizer.ggml.merges", (["u8"], [1])),
            ("tokenizer.ggml.eos_token_id", ("u32", 4)),
            ("tokenizer.ggml.eos_token_id", ("i32", -1)),
            ("tokenizer.ggml.add_bos_token", ("u32", 1)),
            ("tokenizer.chat_template", ("u32", 1)),
        ],
    )
    def test_wrong_metadata(self, tmp_path, key, item):
        name = "expected" if key in ("llama.attention.key_length", "llama.attention.value_length") else key
        with pytest.raises(FormatError, match=name.removeprefix("llama.rope.")):
            _ = model(tmp_path, {}, **{key: item}).config

    def test_missing_metadata(self, tmp_path):
        metadata = files.llama_metadata()
        del metadata["llama.block_count"]
        with pytest.raises(FormatError, match="llama.block_count: expected a number from 1 on, got nothing"):
            _ = opened(tmp_path, files.gguf(metadata)).config

    def test_another_architecture(self, tmp_path):
        with pytest.raises(FormatError, match="general.architecture: expected one of llama, .*, got 'mamba'"):
            models.build(opened(tmp_path, files.gguf({"general.architecture": ("string", "mamba")})))

    def test_no_embedding(self, tmp_path):
        with pytest.raises(FormatError, match="expected a tensor 'token_embd.weight', found none"):
            _ = opened(tmp_path, files.gguf(files.llama_metadata())).config


def test_tokenizer(tmp_path):
    source = model(
        tmp_path,
        {},
        **{
            "tokenizer.ggml.scores": (["f32"], [0.5, 1, 2, 3]),
            "tokenizer.ggml.bos_token_id": ("u32", 1),
            "tokenizer.ggml.eot_token_id": ("u32", 2),
            "tokenizer.ggml.pre": ("string", "smollm"),
            "tokenizer.ggml.add_bos_token": ("bool", 0),
            "tokenizer.chat_template": ("string", "{{ messages }}"),
        },
    ).tokenizer
    assert (source.kind, source.model, source.pre) == ("gguf", "gpt2", "smollm")
    assert source.tokens == ["a", "b", "Ġc", "é"]
    assert (source.types, source.scores, source.merges) == ([1, 1, 1, 3], [0.5, 1, 2, 3], ["a b"])
    assert (source.bos_id, source.eos_ids, source.add_bos, source.add_eos) == (1, (3, 2), False, None)
    assert source.chat_template == "{{ messages }}"


class TestWeights:
    def test_names(self, tmp_path):
        tensors = {
            "token_embd": "model.embed_tokens",
            "output_norm": "model.norm",
            "output": "lm_head",
            "blk.0.attn_norm": "model.layers.0.input_layernorm",
            "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
            "blk.0.attn_output": "model.layers.0.self_attn.o_proj",
            "blk.0.attn_q_norm": "model.layers.0.self_attn.q_norm",
            "blk.0.attn_k_norm": "model.layers.0.self_attn.k_norm",
            "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
            "blk.0.ffn_gate": "model.layers.0.mlp.gate_proj",
            "blk.0.ffn_up": "model.layers.0.mlp.up_proj",
            "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
        }
        arrays = {f"{raw}.weight": draw(4, 3) for raw in tensors}
        others = {"blk.0.odd.weight": draw(2), "blk.0.attn_q.scale": draw(1), "odd": draw(1)}
        view = model(tmp_path, arrays | others | {"rope_freqs.weight": draw(8) ** 2}, "qwen3").weights(
            models.layout("qwen3")
        )
        for raw, path in tensors.items():
            layer = view.linear(path, (4, 3))
            assert isinstance(layer, Dense)
            np.testing.assert_array_equal(layer.weight, arrays[f"{raw}.weight"])
        assert view.unused() == [*others]

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
    @pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
    def test_rows_of_queries_and_keys(self, tmp_path, architecture, dtype):
        """They stay as they are; only files of the llama architecture have them in the order of pairs."""
        arrays = {"q": draw(64, 64, dtype=dtype), "k": draw(32, 64, dtype=dtype)}
        bias = draw(64)
        stored = {f"blk.0.attn_{name}.weight": array for name, array in arrays.items()}
        checkpoint = model(tmp_path, stored | {"blk.0.attn_q.bias": bias}, architecture)
        view = checkpoint.weights(models.layout(architecture))
        for name, array in arrays.items():
            layer = view.linear(f"model.layers.0.self_attn.{name}_proj", array.shape)
            assert isinstance(layer, Dense)
            np.testing.assert_array_equal(layer.weight, array)
        np.testing.assert_array_equal(view.linear("model.layers.0.self_attn.q_proj").bias, bias)
        assert checkpoint.config.get("rope_interleave", False) == (architecture == "llama")

    @pytest.mark.parametrize("kind", reference.SIZES)
    def test_blocks(self, tmp_path, kind):
        """They are the mapped file."""
        size, values = reference.SIZES[kind]
        one, stack = (files.blocks(RNG, kind, size, shape) for shape in ((64, size), (3, 5, size)))
        stored = {
            "blk.0.attn_q.weight": (kind, (64, values), one.tobytes()),
            "blk.0.ffn_up_exps.weight": (kind, (3, 5, values), stack.tobytes()),
        }
        checkpoint = model(tmp_path, stored)
        view = checkpoint.weights(models.layout("llama"))
        layers = (
            view.linear("model.layers.0.self_attn.q_proj", (64, values)),
            view.experts("model.layers.0.block_sparse_moe.switch_mlp.up_proj", (3, 5, values)),
        )
        for layer, raw, data in zip(layers, stored, (one, stack)):
            assert isinstance(layer, Gguf)
            assert layer.kind == kind
            np.testing.assert_array_equal(layer.blocks, data)
            assert np.shares_memory(layer.blocks, checkpoint.view(raw))

    def test_refusals(self, tmp_path):
        tensors = {
            "token_embd.weight": draw(4, 64),
            "output_norm.weight": draw(64),
        }
        view = model(tmp_path, tensors).weights(models.layout("llama"))
        with pytest.raises(FormatError, match="'token_embd.weight': shape: expected \\[5, 64\\], got"):
            view.linear("model.embed_tokens", (5, 64))
        with pytest.raises(FormatError, match="'output_norm.weight': shape: expected a matrix"):
            view.linear("model.norm")
        with pytest.raises(FormatError, match="'blk.1.ffn_up.weight': expected a tensor"):
            view.linear("model.layers.1.mlp.up_proj")
        with pytest.raises(FormatError, match="expected a stack of matrices, got \\[4, 64\\]"):
            view.experts("model.embed_tokens")
        assert view.linear("lm_head") is view.linear("lm_head")
