"""``pyturbo info`` against what loading the same checkpoints gives."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

import pyturbo
from pyturbo import turbo_codec
from pyturbo.cli import main
from text.tiny_chat import write_model
from tiny_configs import FP_MODELS, MODELS
from tiny_models import hf_tensors, mlx_tensors, write_hf, write_mlx


def facts(capsys: pytest.CaptureFixture[str], path: Path) -> dict:
    assert main(["info", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", MODELS)
def test_sizes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = MODELS[name]
    tensors = {n: a for n, a in hf_tensors(model).items() if "visual" not in n and not n.startswith("mtp.")}
    parameters = sum(array.size for array in tensors.values())
    shown = facts(capsys, write_hf(model, tmp_path / "hf"))
    assert shown["architecture"] == model.config["model_type"]
    assert shown["parameters"] == parameters
    assert shown["file_bytes"] == 4 * parameters
    assert shown["formats"] == {"F32": len(tensors)}
    experts = sum(array.size for n, array in tensors.items() if ".experts." in n)
    assert shown["parts"].get("experts", {"parameters": 0})["parameters"] == experts
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    count = next((model.text[name] for name in names if name in model.text), 1)
    share = model.text.get("num_experts_per_tok", 1) / count
    assert shown["parameters_per_token"] == round(parameters - experts * (1 - share))
    quantised = facts(capsys, write_mlx(model, tmp_path / "mlx"))
    assert quantised["parameters"] == parameters
    assert quantised["bytes"] == sum(part["nbytes"] for part in quantised["parts"].values())
    assert f"{model.bits} bits in groups of {model.group_size}" in quantised["formats"]
    assert quantised["mapped_bytes"] + quantised["copied_bytes"] == quantised["bytes"]
    settings = ["f32", "f16"]
    if model.text.get("kv_lora_rank", 128) in turbo_codec.DIMS:
        settings += ["turbo8", "turbo8v4", "turbo6v4", "turbo4", "turbo4v2"]
    assert list(quantised["state_bytes"]) == settings
    for kv, states in quantised["state_bytes"].items():
        session = pyturbo.load(tmp_path / "mlx", kv=kv).session(512)
        assert states == {"512": session.nbytes}


@pytest.mark.parametrize("name", FP_MODELS)
def test_small_floats(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are named by their mode; scales and codes are bytes, and only values are parameters."""
    model = FP_MODELS[name]
    shown = facts(capsys, write_mlx(model, tmp_path))
    values = {n: a for n, a in hf_tensors(model).items() if "visual" not in n and not n.startswith("mtp.")}
    assert shown["parameters"] == sum(array.size for array in values.values())
    assert {"mxfp4", "mxfp8", "nvfp4"} & set(shown["formats"]) == {model.mode}
    written = {n: a for n, a in mlx_tensors(model)[0].items() if "vision" not in n}
    assert shown["file_bytes"] == sum(array.nbytes for array in written.values())
    assert shown["mapped_bytes"] + shown["copied_bytes"] == shown["bytes"]


def test_for_a_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(write_model(tmp_path / "model"))]) == 0
    shown = capsys.readouterr().out
    for text in (
        "qwen3_5_moe: 2 delta net, 2 attention",
        "with a chat template",
        "shared expert",
        "8 bits in groups of 64",
        "kv f16",
        "kv turbo4v2",
        "This machine has",
    ):
        assert text in shown
    assert "\x1b" not in shown


def test_a_mixer_states_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyturbo.layers.delta_net.DeltaNet.kind", "recurrence")
    folder = write_model(tmp_path / "model")
    assert facts(capsys, folder)["layers"] == {"recurrence": 2, "attention": 2}
    assert main(["bench", "model", str(folder), "--lengths", "2", "--tokens", "1", "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert "recurrence" in kinds
    assert "delta net" not in kinds


def test_windows_are_a_kind_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = facts(capsys, write_hf(MODELS["gpt_oss"], tmp_path))["layers"]
    window = MODELS["gpt_oss"].config["sliding_window"]
    assert set(layers) == {"attention", f"attention over {window} tokens"}


def test_sampling_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    folder = write_model(tmp_path / "model", layers=2, do_sample=True, **stated)
    assert facts(capsys, folder)["sampling"] == stated
    assert main(["info", str(folder)]) == 0
    assert "temperature 0.6, top_p 0.95, top_k 20" in capsys.readouterr().out
    folder = write_model(tmp_path / "silent", layers=2)
    assert facts(capsys, folder)["sampling"] == {}
    assert main(["info", str(folder)]) == 0
    assert "always the likeliest token" in capsys.readouterr().out
    write_model(folder, layers=2, top_p=7, top_k=20)
    assert main(["info", str(folder)]) == 0
    message = "expected a number above 0 and at most 1, got 7"
    assert f"ignored top_p: {message}" in " ".join(capsys.readouterr().out.split())
    found = facts(capsys, folder)
    assert (found["sampling"], found["sampling_ignored"]) == ({"top_k": 20}, {"top_p": message})


def test_what_is_wrong_with_a_tokenizer_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "a [bold] name", layers=2)
    (folder / "chat_template.jinja").write_text("{% for %}")
    tokenizer = facts(capsys, folder)["tokenizer"]
    assert tokenizer["chat_template"] is False
    assert tokenizer["chat_template_fault"].startswith("chat_template: not a template: ")
    assert main(["info", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "tokens, with a chat template that cannot be used: chat_template: not a template: " in shown
    assert str(folder) in shown
    (folder / "chat_template.jinja").unlink()
    tokenizer = facts(capsys, folder)["tokenizer"]
    assert (tokenizer["chat_template"], tokenizer["chat_template_fault"]) == (False, None)
    (folder / "tokenizer.json").write_text('{"model": ')
    tokenizer = facts(capsys, folder)["tokenizer"]
    assert tokenizer["fault"].startswith(f"{folder / 'tokenizer.json'}: ")
    assert main(["info", str(folder)]) == 0
    assert f"tokenizer      cannot be used: {tokenizer['fault']}" in capsys.readouterr().out
    (folder / "tokenizer.json").unlink()
    assert facts(capsys, folder)["tokenizer"] is None


def test_no_weights_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of a terabyte whose files are holes."""
    folder = tmp_path / "huge"
    folder.mkdir()
    sizes = {"hidden_size": 8192, "moe_intermediate_size": 4096, "num_experts": 512, "num_hidden_layers": 4}
    config = MODELS["qwen3_moe"].config | sizes | {"mlp_only_layers": [], "max_position_embeddings": 200000}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens": (config["vocab_size"], 8192), "model.norm": (8192,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head"] = shapes["model.embed_tokens"]
    heads, kv_heads = (
        config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value")
    )
    for i in range(4):
        layer = {
            "input_layernorm": (8192,),
            "post_attention_layernorm": (8192,),
            "self_attn.q_proj": (heads, 8192),
            "self_attn.k_proj": (kv_heads, 8192),
            "self_attn.v_proj": (kv_heads, 8192),
            "self_attn.o_proj": (8192, heads),
            "self_attn.q_norm": (config["head_dim"],),
            "self_attn.k_norm": (config["head_dim"],),
            "mlp.gate": (512, 8192),
            "mlp.switch_mlp.gate_proj": (512, 4096, 8192),
            "mlp.switch_mlp.up_proj": (512, 4096, 8192),
            "mlp.switch_mlp.down_proj": (512, 8192, 4096),
        }
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        nbytes = 4 * math.prod(shape)
        header[f"{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 16)  # what lies behind is aligned
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            os.truncate(file.fileno(), 8 + len(text) + end)
        except OSError:
            pytest.skip("the file system has no files of that size")
    shown = facts(capsys, folder)
    tables = 4 * 4 * config["head_dim"] // 2  # of positions, float32 in every layer
    assert shown["bytes"] == end + tables
    assert shown["mapped_bytes"] == shown["file_bytes"] == end > 8e11
    assert list(shown["state_bytes"]["f16"]) == ["4096", "32768", "131072", "200000"]
    assert main(["info", str(folder)]) == 0
    assert " !" in capsys.readouterr().out


def test_helpful_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "Tiny-Model")
    broken = tmp_path / "x" / "broken"
    broken.parent.mkdir()
    broken.symlink_to(tmp_path / "gone")
    files = tmp_path / "x" / "files"
    files.mkdir()
    (files / "a.gguf").touch()
    for path, message in (
        (tmp_path / "tiny-model", f"no such file or directory; {tmp_path} has 'Tiny-Model'"),
        (tmp_path / "x" / "y" / "z", f"no such file or directory; {tmp_path / 'x'} holds 'broken'"),
        (broken, f"broken: no such file or directory: it is a link to {tmp_path / 'gone'}"),
        ("someone/Model-4bit/", "on the Hugging Face hub: pyturbo pull someone/Model-4bit"),
        (Path("someone/Model-4bit"), "on the Hugging Face hub: pyturbo pull someone/Model-4bit"),
        (tmp_path, "expected a directory with config.json, it holds 'Tiny-Model', 'x'\n"),
        (files, "expected a directory with config.json, it holds 'a.gguf'; name the .gguf file itself\n"),
        (folder / "tokenizer.json", "expected a directory with config.json or a .gguf file"),
    ):
        assert main(["info", str(path)]) == 1
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.count("\n") == 1
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt5"}))
    assert main(["info", str(folder)]) == 1
    assert "model_type: expected one of deepseek_v3, gpt_oss, llama, " in capsys.readouterr().err


def test_without_a_path_it_is_the_model_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    assert "qwen3_5_moe" in capsys.readouterr().out
