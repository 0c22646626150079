"""Tiny models in GGUF files: against llama.cpp on the same file, and against the published form of the model.

The architectures have their own tests of what they compute; these are about names, layouts and metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguf_models import GGUF_MODELS, GOLDEN, GgufModel, gguf_tensors, metadata, write
from pyturbo.checkpoint import Checkpoint, open_checkpoint
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.gguf import read_header
from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf
from pyturbo.describe import survey
from pyturbo.errors import FormatError
from pyturbo.layers.rope import Rope
from pyturbo.model import Model, load
from pyturbo.models import layout
from pyturbo.serve.shelf import Source, load_source
from tiny_models import checksum, write_hf

BOUND = 1e-4  # of the logits' standard deviation: everything is in float32, added in another order

GOLDENS = [name for name, one in GGUF_MODELS.items() if one.golden]
PUBLISHED = [name for name, one in GGUF_MODELS.items() if one.published]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def model_of(folder: Path, name: str, device: str = "cpu") -> Model:
    path = folder / f"{name}.gguf"
    if not path.exists():
        write(GGUF_MODELS[name], path)
    return load(path, device, kv="f32")


@pytest.mark.parametrize("name", GOLDENS)
def test_logits_are_those_of_llama_cpp(folder: Path, name: str) -> None:
    one = GGUF_MODELS[name]
    with np.load(GOLDEN) as golden:
        want, positions = golden[name], golden["positions"]
        assert golden[f"{name}_checksum"] == checksum(gguf_tensors(one))
    got = model_of(folder, name).logits(one.model.tokens())[positions]
    assert np.abs(got - want).max() <= BOUND * want.std()


@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_are_those_of_the_published_form(folder: Path, name: str) -> None:
    one = GGUF_MODELS[name]
    want = load(write_hf(one.model, folder / f"{name}-hf"), kv="f32").logits(one.model.tokens())
    got = model_of(folder, name).logits(one.model.tokens())
    assert np.abs(got - want).max() <= BOUND * want.std()


def test_tokenizer_and_chat_template_are_those_of_the_file(folder: Path) -> None:
    """Bytes are their own tokens; "the" is made by two merges, and ends of turns are tokens."""
    model = model_of(folder, "qwen35moe")
    ids = model.prompt_ids([{"role": "user", "content": "the é"}])
    assert ids[:1] + ids[-1:] == [258, ord("\n")]
    assert ids[6:10] == [257, ord(" "), *"é".encode()]
    assert ids[10] == 259
    assert model.tokenizer.decode(ids) == "user\nthe é\nassistant\n"


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "qwen35_drafts",
            {"nextn_predict_layers": 5},
            "nextn_predict_layers: expected fewer than the 5 layers",
        ),
        ("qwen35", {"ssm.inner_size": 100}, "ssm.inner_size: expected 4 heads of 64, got 100"),
        ("qwen35", {"ssm.state_size": None}, "ssm.state_size: expected a number from 1 on, got nothing"),
        (
            "qwen35",
            {"attention.recurrent_layers": [1, 0]},
            "recurrent_layers: expected a value for each layer",
        ),
        ("qwen35", {"attention.recurrent_layers": "all"}, "recurrent_layers: expected a list of numbers"),
        ("qwen3moe", {"expert_weights_norm": 1}, "expert_weights_norm: expected true or false"),
        ("qwen3moe", {"expert_used_count": None}, "expert_used_count: expected a number"),
        ("deepseek2", {"expert_gating_func": 1}, "expert_gating_func: expected 2, scores of sigmoid, got 1"),
        (
            "deepseek2",
            {"expert_gating_func": None},
            "expert_gating_func: expected 2, scores of sigmoid, got 1",
        ),
        (
            "deepseek2",
            {"attention.temperature_scale": 0.1},
            "temperature_scale: expected 0, because scores that depend on positions are not supported",
        ),
        (
            "deepseek2",
            {"rope.scaling.attn_factor": 1.5},
            "rope.scaling.attn_factor: expected 1 beside latent attention, got 1.5",
        ),
        (
            "llama_freqs",
            {"rope.scaling.type": "yarn"},
            "scaling.type: expected none or linear beside rope_freqs.weight",
        ),
        (
            "llama",
            {"rope.scaling.type": "longrope"},
            "rope.scaling.type: expected none, linear or yarn, got 'longrope'",
        ),
        (
            "llama",
            {"rope.scaling.attn_factor": 0.0},
            "rope.scaling.attn_factor: expected a positive number, got 0.0",
        ),
        ("deepseek2", {"rope.dimension_count": 80}, "dimension_count: expected less than the 80 values"),
        ("deepseek2", {"attention.kv_lora_rank": None}, "kv_lora_rank: expected a number"),
        ("gpt-oss", {"attention.sliding_window": None}, "sliding_window: expected a number from 1 on"),
        (
            "gpt-oss",
            {"attention.sliding_window_pattern": [1, 0]},
            "attention.sliding_window_pattern: expected a value for each layer",
        ),
        ("qwen3", {"attention.head_count_kv": 5}, "head_count_kv: expected a divisor of the . heads, got 5"),
        (
            "qwen3",
            {"rope.dimension_count": 98},
            "rope.dimension_count: expected an even number up to 96, got 98",
        ),
        (
            "qwen3",
            {"rope.dimension_count": 31},
            "rope.dimension_count: expected an even number up to 96, got 31",
        ),
        ("qwen3", {"attention.key_length": 95}, "key_length: expected an even number up to 512, got 95"),
        ("qwen3", {"attention.key_length": 2**30}, "key_length: expected an even number up to 512, got"),
        ("qwen3", {"attention.value_length": 64}, "value_length: expected 96, as many as keys have, got 64"),
        ("gpt-oss", {"expert_count": None}, "expert_count: expected a number from 1 on, got nothing"),
        (
            "gpt-oss",
            {"feed_forward_length": 1, "expert_feed_forward_length": None},
            "expert_feed_forward_length: expected a number from 1 on, got nothing",
        ),
        (
            "gpt-oss",
            {"block_count": 2**31 - 1, "attention.sliding_window_pattern": 2},
            "block_count: expected at most 3, the layers with tensors, got 2147483647",
        ),
    ],
)
def test_wrong_metadata(tmp_path: Path, name: str, more: dict[str, Any], message: str) -> None:
    one = GGUF_MODELS[name]
    changes = {f"{{}}.{key}": value for key, value in more.items()}
    (path,) = write(replace(one, more=(one.more or {}) | changes), tmp_path / "model.gguf")
    with pytest.raises(FormatError, match=f"{one.architecture}.*{message}"):
        load(path)


def texts_of(name: str, **more: Any) -> GgufModel:
    changes = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return replace(GGUF_MODELS[name], more=changes)


def test_more_tokens_than_the_embedding_has(tmp_path: Path) -> None:
    tokens = metadata(GGUF_MODELS["qwen3"])["tokenizer.ggml.tokens"]
    (path,) = write(texts_of("qwen3", tokens=[*tokens, "zz"], token_type=None), tmp_path / "a.gguf")
    message = "a.gguf: tokenizer.ggml.tokens: expected at most 300, the rows of 'token_embd.weight', got 301"
    with pytest.raises(FormatError, match=message):
        load(path)
    (path,) = write(texts_of("qwen3", tokens=tokens[:280], token_type=None), tmp_path / "b.gguf")
    assert load(path).tokenizer.vocab_size == 280


def test_a_file_without_a_tokenizer_reads_token_ids(tmp_path: Path) -> None:
    (path,) = write(
        texts_of("qwen3", tokens=None, token_type=None, merges=None, bos_token_id=None, eos_token_id=None),
        tmp_path / "a.gguf",
    )
    model = load(path)
    assert not model.has_tokenizer
    assert model.embed([[1, 2, 3]]).shape == (1, 192)
    with pytest.raises(
        FormatError, match="a.gguf: tokenizer.ggml.tokens: expected a vocabulary, got nothing"
    ):
        model.prompt_ids("a")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "bert"}, 'tokenizer.ggml.model: expected "gpt2" or "llama", got \'bert\''),
        ({"pre": "weird"}, "tokenizer.ggml.pre: expected one of .*, got 'weird'"),
    ],
)
def test_a_tokenizer_that_cannot_be_used(tmp_path: Path, more: dict[str, str], message: str) -> None:
    """A server says so when it starts."""
    (path,) = write(texts_of("qwen3", **more), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match=f"a.gguf: {message}"):
        load(path).generate("a", max_tokens=1)
    with pytest.raises(FormatError, match=f"a.gguf: {message}"):
        load_source(Source("a", lambda: load(path)))


def test_metadata_that_may_be_missing(tmp_path: Path) -> None:
    """Defaults are those of llama.cpp."""
    one = GGUF_MODELS["qwen3moe"]
    (path,) = write(replace(one, more={"{}.expert_feed_forward_length": None}), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match=r"expected \[6, 106, 192\], got \[6, 64, 192\]"):  # 320 // 3
        load(path)
    oss = GGUF_MODELS["gpt-oss"]
    (path,) = write(replace(oss, more={"{}.attention.sliding_window_pattern": 3}), tmp_path / "b.gguf")
    assert [layer.mixer.kv_heads.window for layer in load(path).network.layers] == [27, 27, 0]
    flags = np.array([False, True, True])
    (path,) = write(replace(oss, more={"{}.attention.sliding_window_pattern": flags}), tmp_path / "c.gguf")
    assert [layer.mixer.kv_heads.window for layer in load(path).network.layers] == [0, 27, 27]


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3next"])
def test_weights_of_experts_are_normalised_unless_a_file_denies_it(tmp_path: Path, name: str) -> None:
    """Converters write no entry, and llama.cpp reads none: without one logits are those of llama.cpp."""
    one = GGUF_MODELS[name]
    assert not any("expert_weights_norm" in key for key in metadata(one))
    with np.load(GOLDEN) as golden:
        always, positions = golden[name], golden["positions"]
    raw = replace(one.model, config=one.model.config | {"norm_topk_prob": False})
    published = load(write_hf(raw, tmp_path / "raw"), "cpu", kv="f32").logits(raw.tokens())[positions]
    assert np.abs(published - always).max() > 100 * BOUND * always.std()
    for stated, want in ((True, always), (False, published)):
        more = (one.more or {}) | {"{}.expert_weights_norm": stated}
        (path,) = write(replace(one, more=more), tmp_path / f"{stated}.gguf")
        got = load(path, "cpu", kv="f32").logits(one.model.tokens())[positions]
        assert np.abs(got - want).max() <= BOUND * want.std()


def test_yarn_of_gpt_oss_is_that_of_its_configuration(tmp_path: Path) -> None:
    """Files do not state "truncate": the ramp ends between pairs, as the model was trained.

    Its ends are those of the published sizes in the reference implementation.
    """
    (path,) = write(GGUF_MODELS["gpt-oss_rope"], tmp_path / "a.gguf")
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config
    rope = Rope.read(Entries("config.json", config), config["head_dim"])
    pairs = np.arange(32)
    plain = 150000.0 ** (-pairs / 32)
    ramp = np.clip((pairs - 8.092779115512402) / (17.39802450158856 - 8.092779115512402), 0, 1)
    np.testing.assert_allclose(rope.inv_freq, plain * (1 - ramp) + plain / 32 * ramp, rtol=1e-6)
    (path,) = write(GGUF_MODELS["deepseek2"], tmp_path / "b.gguf")
    with open_checkpoint(path) as checkpoint:
        assert "truncate" not in checkpoint.config["rope_scaling"]


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    """A scale that llama.cpp multiplies by, for example."""
    one = GGUF_MODELS["qwen3"]
    extra = {"blk.1.attn_q.scale": np.ones(1, np.float32)}
    (path,) = write(replace(one, change=lambda tensors, config: tensors | extra), tmp_path / "a.gguf")
    with pytest.raises(
        FormatError, match="expected the tensors of qwen3, found 1 others: 'blk.1.attn_q.scale'"
    ):
        load(path)


@pytest.mark.parametrize(
    ("name", "layers", "message"),
    [
        (
            "qwen3",
            1,
            r"found 22 others: 'blk.1.attn_norm.weight', .*, \.\.\.; layer 2 is beyond qwen3.block_count",
        ),
        ("qwen35_drafts", 4, r"found [0-9]+ others: .*'blk\..*; layer 4 is beyond qwen35.block_count"),
    ],
)
def test_more_layers_than_the_file_says(tmp_path: Path, name: str, layers: int, message: str) -> None:
    one = GGUF_MODELS[name]
    (path,) = write(replace(one, more=(one.more or {}) | {"{}.block_count": layers}), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match=message):
        load(path)


def test_tensors_of_no_layer_have_the_name_of_the_file(tmp_path: Path) -> None:
    one = GGUF_MODELS["llama"]
    extra = {"blk.1.attn_v.odd": np.ones(1, np.float32), "blk.0.attn_q_norm.bias": np.ones(80, np.float32)}
    (path,) = write(replace(one, change=lambda tensors, config: tensors | extra), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match="found 2 others: 'blk.1.attn_v.odd', 'blk.0.attn_q_norm.bias'"):
        load(path)


def test_a_bias_of_the_output_is_that_of_qwen2_alone(tmp_path: Path) -> None:
    one, bias = GGUF_MODELS["qwen3"], {"output.bias": np.ones(300, np.float32)}
    (path,) = write(replace(one, change=lambda tensors, config: tensors | bias), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match="a.gguf: 'output.bias': expected no such tensor"):
        load(path)


def test_both_forms_of_keys_and_values(folder: Path, tmp_path: Path) -> None:
    """Some files have the projections of keys and values split and in one: the split ones are used."""
    one, fused = GGUF_MODELS["deepseek2"], GGUF_MODELS["deepseek2_fused"]
    both = replace(one, change=lambda tensors, config: tensors | fused.change(tensors, config))
    (path,) = write(both, tmp_path / "a.gguf")
    tokens = one.model.tokens()[:20]
    want = model_of(folder, "deepseek2").logits(tokens)
    np.testing.assert_array_equal(load(path, kv="f32").logits(tokens), want)


def unmapped(name: str, path: Path, fused: str) -> Path:
    """Write a model whose fused tensors lie at addresses that kernels cannot use in the mapped file."""
    one = GGUF_MODELS[name]
    tensors = [GgufTensor.of(raw, array) for raw, array in gguf_tensors(one).items()]
    for pad in ("", "1234567", "12345678"):
        write_gguf(path, {**metadata(one), "general.description": pad}, tensors, alignment=8)
        header = read_header(path)
        if not any(info.mapped for raw, info in header.tensors.items() if fused in raw):
            return path
    raise AssertionError("every place is a multiple of 16")


@pytest.mark.parametrize("preloaded", [False, True])
def test_a_fused_tensor_that_cannot_be_mapped_is_held_once(tmp_path: Path, preloaded: bool) -> None:
    path = unmapped("qwen35moe_gates", tmp_path / "model.gguf", "gate_up")
    module = "model.layers.1.mlp.switch_mlp"
    with open_checkpoint(path) as checkpoint:
        fused = next(info for raw, info in checkpoint.items() if raw.startswith("blk.1.ffn_gate_up"))
        for values in (True, False):
            weights = checkpoint.weights(layout("qwen3_5_moe"), values)
            if preloaded:
                weights.preload()
            held = weights.ledger.held if weights.ledger else 0
            layers = [weights.experts(f"{module}.{half}_proj") for half in ("gate", "up")]
            gate, up = (layer.arrays[0] for layer in layers)
            if weights.ledger is None:
                assert up.ctypes.data - gate.ctypes.data == gate[0].nbytes
                np.testing.assert_array_equal(np.concatenate([gate, up], axis=1), fused[:])
            else:
                assert weights.ledger.held - held == (0 if preloaded else fused.nbytes)
    tokens = GGUF_MODELS["qwen35moe_gates"].model.tokens()[:9]
    (mapped,) = write(GGUF_MODELS["qwen35moe_gates"], tmp_path / "mapped.gguf")
    np.testing.assert_array_equal(load(path).logits(tokens), load(mapped).logits(tokens))


def fused_layer(checkpoint: Checkpoint) -> tuple[str, str]:
    """Names in the file and here of a layer of attention after the first."""
    raw = [raw for raw in checkpoint if raw.endswith("attn_output.weight") and not raw.startswith("blk.0.")]
    return raw[0].removesuffix(".attn_output.weight"), f"model.layers.{raw[0][4]}.self_attn"


@pytest.mark.parametrize("name", ["qwen35_qkv", "llama_biases_qkv"])
def test_queries_keys_and_values_in_one_tensor_are_its_rows(tmp_path: Path, name: str) -> None:
    """They lie in the mapped file, one after another."""
    (path,) = write(GGUF_MODELS[name], tmp_path / "model.gguf")
    with open_checkpoint(path) as checkpoint:
        layer, module = fused_layer(checkpoint)
        fused = checkpoint[f"{layer}.attn_qkv.weight"]
        weights = checkpoint.weights(layout(checkpoint.model_type))
        q, k, v = (weights.linear(f"{module}.{part}_proj") for part in "qkv")
        arrays = [layer.arrays[0] for layer in (q, k, v)]
        np.testing.assert_array_equal(np.concatenate(arrays), fused[:])
        for before, after in pairwise(arrays):
            assert after.ctypes.data - before.ctypes.data == before.nbytes
        if name == "llama_biases_qkv":
            biases = [layer.bias for layer in (q, k, v)]
            np.testing.assert_array_equal(np.concatenate(biases), checkpoint[f"{layer}.attn_qkv.bias"][:])
        counted = survey(checkpoint)
        assert counted.file_bytes + counted.other_bytes == sum(info.nbytes for info in checkpoint.values())
        assert counted.weights.nbytes >= counted.file_bytes


@pytest.mark.parametrize("name", ["qwen35_qkv", "llama_qkv"])
def test_rows_that_cannot_be_mapped_are_held_once(tmp_path: Path, name: str) -> None:
    path = unmapped(name, tmp_path / "model.gguf", "attn_qkv")
    with open_checkpoint(path) as checkpoint:
        weights = checkpoint.weights(layout(checkpoint.model_type), values=False)
        weights.preload()
        assert weights.ledger is not None
        held = weights.ledger.held
        layer, module = fused_layer(checkpoint)
        layers = [weights.linear(f"{module}.{part}_proj") for part in "qkv"]
        assert weights.ledger.held - held == checkpoint[f"{layer}.attn_qkv.weight"].nbytes
        assert len(layers) == 3
    tokens = GGUF_MODELS[name].model.tokens()[:9]
    (mapped,) = write(GGUF_MODELS[name], tmp_path / "mapped.gguf")
    np.testing.assert_array_equal(load(path).logits(tokens), load(mapped).logits(tokens))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda array: array[:-1], r"expected \[[0-9]+, 192\], got"),
        (lambda array: array[:9], "expected more than [0-9]+ rows, got 9"),
    ],
)
def test_fused_rows_of_another_size(
    tmp_path: Path, rows: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    one = GGUF_MODELS["llama_qkv"]
    raw = "blk.1.attn_qkv.weight"
    cut = replace(one, change=lambda *given: (fused := one.change(*given)) | {raw: rows(fused[raw])})
    (path,) = write(cut, tmp_path / "a.gguf")
    with pytest.raises(FormatError, match=f"a.gguf: '{raw}': shape: {message}"):
        load(path)


def test_latent_attention_has_no_fused_tensor(tmp_path: Path) -> None:
    one = GGUF_MODELS["deepseek2_plain"]
    extra = {"blk.1.attn_qkv.weight": np.ones((9, one.model.text["hidden_size"]), np.float32)}
    (path,) = write(replace(one, change=lambda tensors, config: tensors | extra), tmp_path / "a.gguf")
    with pytest.raises(FormatError, match="found 1 others: 'blk.1.attn_qkv.weight'"):
        load(path)
