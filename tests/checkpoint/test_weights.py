"""The view that models have of a directory: names, layouts, formats, and what they refuse."""

import json

import ml_dtypes
import numpy as np
import pytest

import tiny_models
from checkpoint import files
from pyturbo import models, ops
from pyturbo.checkpoint import open_checkpoint
from pyturbo.errors import FormatError
from pyturbo.formats import Affine, Dense, Fp
from tiny_configs import MODELS
from write_safetensors import write_safetensors

RNG = np.random.default_rng(7)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape, np.float32).astype(dtype)


def weights(folder, tensors, producer="pt", **config):
    write_safetensors(folder / "model.safetensors", tensors, producer)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"} | config))
    return open_weights(folder)


def open_weights(folder):
    checkpoint = open_checkpoint(folder)
    return checkpoint.weights(models.layout(checkpoint.model_type))


def affine(path, w, bits, group_size):
    packed, scales, biases = ops.affine_quantize(w, bits, group_size)
    return {f"{path}.weight": packed, f"{path}.scales": scales, f"{path}.biases": biases}


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_prefixes(tmp_path, prefix):
    norm = draw(6)
    view = weights(
        tmp_path,
        {
            prefix + "norm.weight": norm,
            "vision_tower.x": draw(1),
            "model.visual.x": draw(1),
            "audio_tower.x": draw(1),
            "mtp.fc.weight": draw(2, 2),
            "language_model.mtp.fc.weight": draw(2, 2),
            prefix + "layers.0.self_attn.rotary_emb.inv_freq": draw(3),
        },
    )
    np.testing.assert_array_equal(view.tensor("model.norm.weight", (6,)), norm)
    assert view.unused() == []


def test_two_names_for_one_tensor(tmp_path):
    with pytest.raises(FormatError, match="is the same tensor as"):
        weights(tmp_path, {"model.norm.weight": draw(2), "language_model.model.norm.weight": draw(2)})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_bits_and_group_come_from_the_shapes(tmp_path, bits, group_size, dtype):
    """Whatever the config says: the caller knows how many inputs there are."""
    w = draw(3, 384, dtype=dtype)
    view = weights(
        tmp_path, affine("lm_head", w, bits, group_size), "mlx", quantization={"bits": 4, "mode": "mxfp4"}
    )
    layer = view.linear("lm_head", (3, 384))
    assert isinstance(layer, Affine)
    assert (layer.bits, layer.group_size, layer.shape) == (bits, group_size, (3, 384))
    for got, want in zip(layer.weight, ops.affine_quantize(w, bits, group_size)):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
        assert got.ctypes.data % 16 == 0


QUANTIZATIONS = {
    "top level": ({"bits": 8, "group_size": 64}, True),
    "null group size": ({"bits": 8, "group_size": None}, True),
    "override": ({"bits": 4, "group_size": 32, "lm_head": {"bits": 8, "group_size": 64}}, True),
    "override with a prefix": ({"bits": 4, "language_model.lm_head": {"bits": 8, "group_size": 64}}, True),
    "override without a mode is affine": ({"bits": 4, "mode": "mxfp4", "lm_head": {"bits": 8}}, True),
    "override null": ({"bits": 4, "group_size": 32, "lm_head": {"bits": 8, "group_size": None}}, True),
    "same number of words": ({"bits": 4, "group_size": 128}, True),
    "contradiction": ({"bits": 4, "group_size": 64}, False),
    "false": ({"bits": 8, "group_size": 64, "lm_head": False}, False),
    "none": (None, False),
}


@pytest.mark.parametrize("case", QUANTIZATIONS)
def test_the_config_decides_where_the_caller_does_not(tmp_path, case):
    quantization, known = QUANTIZATIONS[case]
    view = weights(tmp_path, affine("lm_head", draw(3, 128), 8, 64), "mlx", quantization=quantization)
    if known:
        layer = view.linear("lm_head")
        want = (4, 128) if case == "same number of words" else (8, 64)
        assert (layer.bits, layer.group_size) == want
    else:
        with pytest.raises(FormatError, match="'lm_head.weight': expected an entry of the config"):
            view.linear("lm_head")


def test_without_scales_it_is_not_quantised(tmp_path):
    w = draw(3, 40)
    layer = weights(tmp_path, {"lm_head.weight": w}, "mlx", quantization={"bits": 4}).linear(
        "lm_head", (3, 40)
    )
    assert isinstance(layer, Dense)
    np.testing.assert_array_equal(layer.weight, w)


def test_mapped_weights_run(tmp_path):
    """A kernel reads the file's own memory."""
    w = draw(8, 64)
    tensors = affine("lm_head", w, 4, 32)
    header, data = {}, b""
    for name, array in tensors.items():
        kind = "U32" if array.dtype == np.uint32 else "F32"
        header[name] = files.entry(kind, array.shape, len(data), len(data) + array.nbytes)
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 16)
    weights(tmp_path, {}, tie_word_embeddings=False)
    (tmp_path / "model.safetensors").write_bytes(files.safetensors(text, data))
    layer = open_weights(tmp_path).linear("lm_head", (8, 64))
    assert not any(array.flags.writeable for array in layer.weight[:3])
    x = draw(2, 64)
    np.testing.assert_array_equal(
        ops.affine_matmul(x, *layer.weight), ops.affine_matmul(x, *ops.affine_quantize(w, 4, 32), 4, 32)
    )


def test_preload_reads_what_is_not_mapped(tmp_path):
    tensors = affine("lm_head", draw(5, 64), 4, 32) | {"model.norm.weight": draw(64)}
    view = weights(tmp_path, tensors, "mlx")
    calls = []
    view.preload(lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == sum(array.nbytes for array in tensors.values())
    view.checkpoint.close()
    np.testing.assert_array_equal(view.linear("lm_head", (5, 64)).packed, tensors["lm_head.weight"])
    np.testing.assert_array_equal(view.tensor("model.norm.weight"), tensors["model.norm.weight"])


def test_biases_of_layers(tmp_path):
    view = weights(tmp_path, {"a.weight": draw(3, 4), "a.bias": draw(3), "b.weight": draw(3, 4)})
    assert view.linear("a").bias.shape == (3,)
    assert view.linear("b").bias is None
    assert view.linear("a", bias=True).bias is not None
    with pytest.raises(FormatError, match="'b.bias': expected a tensor of this name, found none"):
        view.linear("b", bias=True)
    with pytest.raises(FormatError, match="'a.bias': expected no such tensor"):
        view.linear("a", bias=False)


def test_rows(tmp_path):
    w, bias = draw(6, 64), draw(6)
    order = np.array([3, 0, 5])
    for tensors in (affine("a", w, 5, 32), {"a.weight": w}):
        layer = weights(tmp_path, tensors | {"a.bias": bias}).linear("a", (6, 64))
        part = layer.rows(order)
        assert part.shape == (3, 64)
        np.testing.assert_array_equal(part.bias, bias[order])
        if isinstance(part, Affine):
            np.testing.assert_array_equal(
                ops.affine_dequantize(*part.weight), ops.affine_dequantize(*layer.weight)[order]
            )
        else:
            np.testing.assert_array_equal(part.weight, w[order])


@pytest.mark.parametrize("tie", [True, False, None])
@pytest.mark.parametrize("own", [True, False])
def test_tied_head(tmp_path, tie, own):
    tensors = {"model.embed_tokens.weight": draw(5, 4)} | ({"lm_head.weight": draw(5, 4)} if own else {})
    view = weights(tmp_path, tensors, tie_word_embeddings=tie)
    if tie is False and not own:
        with pytest.raises(FormatError, match="'lm_head.weight'"):
            view.linear("lm_head")
        return
    tied = tie or (tie is None and not own)
    want = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]
    embedding = view.linear("model.embed_tokens")
    np.testing.assert_array_equal(view.linear("lm_head", (5, 4)).weight, want)
    assert (view.linear("lm_head") is embedding) == tied


def test_tie_of_another_type(tmp_path):
    with pytest.raises(FormatError, match="tie_word_embeddings"):
        weights(tmp_path, {"lm_head.weight": draw(5, 4)}, tie_word_embeddings="yes").linear("lm_head")


NORMS = (
    "model.norm",
    "model.layers.3.input_layernorm",
    "model.layers.3.post_attention_layernorm",
    "model.layers.3.self_attn.q_norm",
    "model.layers.3.self_attn.k_norm",
)


@pytest.mark.parametrize("conv", ["hf", "mlx", None])
@pytest.mark.parametrize("producer", ["pt", "mlx"])
@pytest.mark.parametrize("model", ["qwen3_5_moe", "qwen3_5", "qwen3_next", "qwen3_moe", "llama"])
def test_offset_norms_and_convolutions(tmp_path, model, producer, conv):
    """1 is added to the norms of the files of transformers alone, which the convolution tells."""
    tensors = {f"{name}.weight": draw(6, dtype=ml_dtypes.bfloat16) for name in NORMS}
    plain = {"model.layers.0.linear_attn.norm.weight": draw(6, dtype=ml_dtypes.bfloat16)}
    taps = draw(5, 4)
    layers = {} if conv is None else {"model.layers.0.linear_attn.conv1d.weight": taps}
    shaped = {name: w[:, None] if conv == "hf" else w[..., None] for name, w in layers.items()}
    view = weights(tmp_path, tensors | plain | shaped, producer, model_type=model)
    from_hf = conv == "hf" or (conv is None and producer == "pt")
    for name, w in tensors.items():
        got = view.tensor(name, (6,))
        if from_hf and model in ("qwen3_5_moe", "qwen3_5", "qwen3_next"):
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, w.astype(np.float32) + np.float32(1))
        else:
            assert got.dtype == w.dtype
            np.testing.assert_array_equal(got, w)
    for name, w in (plain | layers).items():
        np.testing.assert_array_equal(view.tensor(name, w.shape), w)


@pytest.mark.parametrize("shapes", [[(5, 4, 4)], [(5, 4)], [(5, 4, 1), (5, 1, 4)]])
def test_convolutions_of_no_known_layout(tmp_path, shapes):
    tensors = {f"model.layers.{i}.linear_attn.conv1d.weight": draw(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(FormatError, match="conv1d.weight': "):
        weights(tmp_path, tensors, model_type="qwen3_next")


class TestExperts:
    PATH = "model.layers.0.mlp.switch_mlp."

    def stacks(self):
        return {"gate_proj": draw(6, 5, 7), "up_proj": draw(6, 5, 7), "down_proj": draw(6, 7, 5)}

    def layout(self, stacks, kind):
        base = "model.layers.0.mlp."
        if kind == "stacked":
            return {f"{self.PATH}{name}.weight": w for name, w in stacks.items()}
        if kind == "fused":
            both = np.concatenate((stacks["gate_proj"], stacks["up_proj"]), axis=1)
            return {f"{base}experts.gate_up_proj": both, f"{base}experts.down_proj": stacks["down_proj"]}
        return {f"{base}experts.{e}.{name}.weight": w[e] for name, w in stacks.items() for e in range(6)}

    @pytest.mark.parametrize("producer", ["pt", "mlx"])
    @pytest.mark.parametrize("kind", ["stacked", "fused", "each"])
    def test_layouts(self, tmp_path, kind, producer):
        stacks = self.stacks()
        view = weights(tmp_path, self.layout(stacks, kind), producer)
        view.preload()
        for name, w in stacks.items():
            for shape in (None, w.shape):
                layer = view.experts(self.PATH + name, shape)
                np.testing.assert_array_equal(layer.weight, w)
                assert layer.weight.ctypes.data % 16 == 0
        assert view.unused() == []

    @pytest.mark.parametrize("kind", ["stacked", "fused", "each"])
    @pytest.mark.parametrize("shape", [(5, 5, 7), (7, 5, 7), (6, 4, 7), (6, 5, 8)])
    def test_wrong_shapes(self, tmp_path, kind, shape):
        view = weights(tmp_path, self.layout(self.stacks(), kind))
        with pytest.raises(FormatError, match="gate_proj.weight': (shape: )?expected"):
            view.experts(self.PATH + "gate_proj", shape)

    def test_experts_that_differ(self, tmp_path):
        tensors = self.layout(self.stacks(), "each")
        name = "model.layers.0.mlp.experts.3.up_proj.weight"
        with pytest.raises(FormatError, match="experts.3.up_proj.weight': shape"):
            weights(tmp_path, tensors | {name: draw(5, 8)}).experts(self.PATH + "up_proj")
        with pytest.raises(FormatError, match="experts.3.up_proj.weight': dtype"):
            weights(tmp_path, tensors | {name: draw(5, 7, dtype=np.float16)}).experts(self.PATH + "up_proj")

    def test_fused_of_odd_rows(self, tmp_path):
        view = weights(tmp_path, {"model.layers.0.mlp.experts.gate_up_proj": draw(6, 9, 7)})
        with pytest.raises(FormatError, match="2 \\* out"):
            view.experts(self.PATH + "gate_proj")

    def test_quantised(self, tmp_path):
        w = draw(6, 5, 64)
        view = weights(tmp_path, affine(self.PATH + "up_proj", w, 4, 32), "mlx")
        layer = view.experts(self.PATH + "up_proj", (6, 5, 64))
        np.testing.assert_array_equal(layer.packed, ops.affine_quantize(w, 4, 32)[0])

    def test_missing(self, tmp_path):
        with pytest.raises(FormatError, match="switch_mlp.up_proj.weight': expected a tensor"):
            weights(tmp_path, {"x": draw(1)}).experts(self.PATH + "up_proj")


def changed(**tensors):
    return affine("a", draw(3, 128), 4, 64) | {f"a.{name}": array for name, array in tensors.items()}


DAMAGED = {
    "packed as floats": (changed(weight=draw(3, 16)), "'a.weight': dtype: expected U32, got F32"),
    "rows": (changed(weight=np.zeros((4, 16), np.uint32)), "'a.scales': shape|'a.weight': shape"),
    "words": (changed(weight=np.zeros((3, 17), np.uint32)), "'a.weight': expected 128 values"),
    "bits": (changed(weight=np.zeros((3, 28), np.uint32)), "'a.weight': expected .* bits"),
    "axes": (changed(weight=np.zeros((3, 4, 4), np.uint32)), "'a.weight': shape: expected 2 axes"),
    "empty": (changed(weight=np.zeros((3, 0), np.uint32)), "'a.weight': shape: expected 2 axes"),
    "groups": (changed(scales=draw(3, 3), biases=draw(3, 3)), "'a.weight': expected 128 values"),
    "group size": (changed(scales=draw(3, 16), biases=draw(3, 16)), "'a.weight': expected .* groups"),
    "scale rows": (changed(scales=draw(2, 2)), "'a.scales': shape"),
    "scale type": (changed(scales=np.zeros((3, 2), np.uint32)), "'a.scales': dtype"),
    "bias type": (changed(biases=draw(3, 2, dtype=np.float16)), "'a.biases': dtype: expected F32, got F16"),
    "bias shape": (changed(biases=draw(3, 4)), "'a.biases': shape"),
    "not quantised": ({"a.weight": np.zeros((3, 16), np.uint32)}, "'a.weight': dtype: expected F32 or"),
    "dense shape": ({"a.weight": draw(3, 64)}, "'a.weight': shape: expected \\[3, 128\\], got \\[3, 64\\]"),
    "dense axes": ({"a.weight": draw(3)}, "'a.weight': shape: expected 2 axes"),
    "missing": ({"b": draw(1)}, "'a.weight': expected a tensor of this name, found none"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_named(tmp_path, damage):
    tensors, message = DAMAGED[damage]
    view = weights(tmp_path, tensors)
    with pytest.raises(FormatError, match=message) as caught:
        view.linear("a", (3, 128))
    assert str(tmp_path) in str(caught.value)


def test_missing_biases(tmp_path):
    tensors = changed()
    del tensors["a.biases"]
    with pytest.raises(FormatError, match="'a.biases': expected a tensor"):
        weights(tmp_path, tensors).linear("a", (3, 128))


FP_MODES = ("mxfp4", "mxfp8", "nvfp4")


def fp(path, w, mode, global_scale=None):
    packed, scales = ops.fp_quantize(w, mode, global_scale)
    return {f"{path}.weight": packed, f"{path}.scales": scales}


@pytest.mark.parametrize("known", [True, False], ids=["by shape", "by config"])
@pytest.mark.parametrize("mode", FP_MODES)
def test_small_floats(tmp_path, mode, known):
    w, bias = draw(3, 128), draw(3)
    view = weights(tmp_path, fp("a", w, mode) | {"a.bias": bias}, "mlx", quantization={"mode": mode})
    layer = view.linear("a", (3, 128)) if known else view.linear("a")
    assert isinstance(layer, Fp)
    assert (layer.mode, layer.shape, layer.global_scale) == (mode, (3, 128), None)
    assert repr(layer) == f"Fp([3, 128], {mode}, bias)"
    np.testing.assert_array_equal(layer.bias, bias)
    for got, want in zip(layer.weight, ops.fp_quantize(w, mode)):
        np.testing.assert_array_equal(got, want)
    some = layer.rows(np.array([2, 0]))
    np.testing.assert_array_equal(some.packed, layer.packed[[2, 0]])
    np.testing.assert_array_equal(some.scales, layer.scales[[2, 0]])
    np.testing.assert_array_equal(some.bias, bias[[2, 0]])
    assert view.unused() == []


@pytest.mark.parametrize("mode", FP_MODES)
def test_experts_of_small_floats(tmp_path, mode):
    stack, scales = draw(2, 3, 64), np.array([2.5, 4.0], np.float32)
    tensors = fp("mlp.switch_mlp.up_proj", stack, mode)
    if mode == "nvfp4":
        tensors["mlp.switch_mlp.up_proj.global_scale"] = scales
    view = weights(tmp_path, tensors, "mlx", quantization={"mode": mode})
    layer = view.experts("mlp.switch_mlp.up_proj", (2, 3, 64))
    assert isinstance(layer, Fp)
    assert layer.shape == (2, 3, 64)
    if mode == "nvfp4":
        np.testing.assert_array_equal(layer.global_scale, scales)
    assert view.unused() == []


def test_wrong_small_floats(tmp_path):
    def refused(message, shape=(3, 64), **changes):
        tensors = fp("a", np.ones((3, 64), np.float32), "mxfp4") | changes
        with pytest.raises(FormatError, match=message):
            weights(tmp_path, tensors, "mlx").linear("a", shape)

    bytes_of = np.zeros
    refused(
        "expected 4 bits in groups of 32, .* got 4 in groups of 64", **{"a.scales": bytes_of((3, 1), "u1")}
    )
    refused("expected 4 bits in groups of 32, .* got 8 in groups of 16", (3, 32))
    refused("'a.scales': shape: expected \\[3, 2\\]", **{"a.scales": bytes_of((2, 2), "u1")})
    refused("'a.scales': dtype: expected F32", **{"a.scales": bytes_of((3, 2), "u4")})
    one = np.ones(1, np.float32)
    refused("'a.global_scale': expected no such tensor beside weights in mxfp4", **{"a.global_scale": one})
    nvfp4 = fp("a", np.ones((3, 64), np.float32), "nvfp4")
    refused("'a.global_scale': shape: expected 1 values", **nvfp4, **{"a.global_scale": np.ones(3, "f4")})
    refused("'a.global_scale': dtype: expected F32", **nvfp4, **{"a.global_scale": np.ones(1, "f2")})


def test_tensor_checks_shape_and_type(tmp_path):
    view = weights(tmp_path, {"a": draw(3), "b": np.zeros(3, np.uint32)})
    with pytest.raises(FormatError, match="'a': shape: expected \\[4\\], got \\[3\\]"):
        view.tensor("a", (4,))
    with pytest.raises(FormatError, match="'b': dtype: expected F32 or F16 or BF16, got U32"):
        view.tensor("b")


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
class TestTinyModels:
    """The checkpoints that the models are tested with, in both layouts."""

    def test_hf(self, tmp_path, model):
        tiny_models.write_hf(model, tmp_path)
        view = open_weights(tmp_path)
        for name, w in tiny_models.hf_tensors(model).items():
            path = name.replace("model.language_model.", "model.")
            if ".experts." in path or path not in view:
                continue
            got = view.tensor(path)
            offset = model.norms_are_offset and path.endswith("norm.weight") and "linear_attn" not in path
            np.testing.assert_array_equal(got.reshape(w.shape), w + np.float32(1) if offset else w)
        assert not any(".experts." not in name for name in view.unused())

    def test_mlx(self, tmp_path, model):
        tiny_models.write_mlx(model, tmp_path)
        view = open_weights(tmp_path)
        layers = 0
        for name, w in tiny_models.mlx_tensors(model)[0].items():
            path = name.removeprefix("language_model.")
            if path.endswith(".scales"):
                path = path.removesuffix(".scales")
                layer = (view.experts if w.ndim == 3 else view.linear)(path)
                np.testing.assert_array_equal(layer.scales, w)
                layers += 1
        assert layers
