"""Tiny models of each architecture against what the reference implementations make of the same files.

Goldens come from tests/oracle: `hf` is transformers in float32, `mlx` is mlx-lm with parameters cast to
float32.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.model import Model, load
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_hf, write_mlx

NAMES = sorted(MODELS)
#: Every model as published and as mlx-lm converts it, and some in formats of small floats.
FORMS = [(name, form) for name in NAMES for form in ("hf", "mlx")] + [(name, "mlx") for name in FP_MODELS]
GOLDENS = Path(__file__).parent.parent / "goldens" / "models"
BOUND = 2e-3  # of the logits' standard deviation

#: Tokens where shaders run on the processor: more than a chunk of the reference and windows of attention.
SLOW_TOKENS = 35


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def path_of(folder: Path, name: str, form: str) -> Path:
    path = folder / name / form
    if not path.exists():
        {"hf": write_hf, "mlx": write_mlx}[form]((MODELS | FP_MODELS)[name], path)
    return path


def model_of(folder: Path, name: str, form: str, device: str = "cpu", kv: str = "f32") -> Model:
    return load(path_of(folder, name, form), device, kv=kv)


@pytest.mark.parametrize("device", pyturbo.devices())
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_logits_match_the_reference(folder: Path, name: str, form: str, device: str) -> None:
    golden = np.load(GOLDENS / f"{name}.npz")
    count = None if device == "cpu" else SLOW_TOKENS
    want = golden[f"{form}_logits"][:count]
    got = model_of(folder, name, form, device).logits(golden["tokens"][:count])
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= BOUND * want.std()


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_each_layer_matches_the_reference(folder: Path, name: str, form: str) -> None:
    golden = np.load(GOLDENS / f"{name}.npz")
    want = golden[f"{form}_layers"]
    got = model_of(folder, name, form).layer_outputs(golden["tokens"])[:, golden["positions"]]
    assert golden["positions"].min() > 64
    for layer, (ours, theirs) in enumerate(zip(got, want)):
        assert np.abs(ours - theirs).max() <= BOUND * theirs.std(), layer


@pytest.mark.parametrize("name", [*NAMES, *FP_MODELS])
def test_chunks_and_steps_agree(folder: Path, name: str) -> None:
    tokens = np.load(GOLDENS / f"{name}.npz")["tokens"]
    model = model_of(folder, name, "mlx")
    want = model.logits(tokens)
    ragged, single = model.session(120), model.session(120)
    position = 0
    for count in (1, 9, 40, 1, 30, 15):
        logits = ragged.prefill(tokens[position : position + count])
        position += count
        assert np.abs(logits - want[position - 1]).max() <= 1e-4 * want.std()
    for token in tokens[:70]:
        logits = single.step(int(token))
    assert np.abs(logits - want[69]).max() <= 1e-4 * want.std()


@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_the_number_of_threads(folder: Path, name: str) -> None:
    tokens = np.load(GOLDENS / f"{name}.npz")["tokens"]
    found = set()
    for threads in (1, 2, 3):
        session = load(path_of(folder, name, "mlx"), threads=threads).session(120)
        session.prefill(tokens)
        found.add(session.logits.tobytes() + session.step(5).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_goes_its_own_way(folder: Path, name: str) -> None:
    model = model_of(folder, name, "mlx", kv="f16")
    session = model.session(40)
    session.prefill([5, 6, 7, 8])
    other = session.fork()
    assert other.logits.tobytes() == session.logits.tobytes()
    here = session.step(11).copy()
    there = other.step(12).copy()
    assert not np.array_equal(here, there)
    again = model.session(40)
    again.prefill([5, 6, 7, 8])
    assert again.step(12).tobytes() == there.tobytes()
    kinds = {name.rpartition(".")[2]: array.dtype for name, array in session.state.items()}
    want = {
        "tokens": np.int32,
        "logits": np.float32,
        "k": np.float16,
        "v": np.float16,
        "latents": np.float16,
        "rope_keys": np.float16,
        "conv": np.float32,
        "memory": np.float32,
    }
    assert kinds.items() <= {kind: np.dtype(dtype) for kind, dtype in want.items()}.items()


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_session_goes_on_with_the_same_bits(folder: Path, tmp_path: Path, name: str) -> None:
    model = model_of(folder, name, "mlx", kv="f16")
    session = model.session(40)
    session.prefill([5, 6, 7, 8])
    session.save(tmp_path / "chat.session")
    session_logits = session.logits.tobytes()
    want = session.step(11).copy()
    restored = model_of(folder, name, "mlx", kv="f16").load_session(tmp_path / "chat.session")
    assert restored.tokens.tolist() == [5, 6, 7, 8]
    assert restored.logits.tobytes() == session_logits
    assert restored.step(11).tobytes() == want.tobytes()
    for piece, array in restored.state.items():
        assert array.tobytes() == session.state[piece].tobytes(), piece
    assert [path.name for path in tmp_path.iterdir()] == ["chat.session"]


def test_refusals_leave_the_session_as_it_was(folder: Path) -> None:
    session = model_of(folder, "llama", "hf").session(8)
    session.prefill([1, 2, 3])
    before = {name: array.copy() for name, array in session.state.items()}
    for ids, message in (
        ([4] * 6, "context: expected at most 8 tokens, got 3 and 6 more"),
        ([4, 229], "token_ids: expected 0 to 228, got 229"),
        ([-1], "token_ids: expected 0 to 228, got -1"),
        ([], "token_ids: expected at least one token, got none"),
        ([1.5], "token_ids: expected a list of integers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            session.prefill(ids)
    assert session.position == 3
    for name, array in session.state.items():
        assert array.tobytes() == before[name].tobytes()
    session.prefill([4] * 5)


def test_wrong_models(tmp_path: Path) -> None:
    path = write_hf(MODELS["qwen3_moe"], tmp_path / "model")
    config = json.loads((path / "config.json").read_text())

    def refused(message: str, **changes: object) -> None:
        (path / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(FormatError, match=message):
            load(path)

    refused("model_type: expected one of deepseek_v3, gpt_oss, .*, qwen3_next, got 'bert'", model_type="bert")
    refused("expected the tensors of qwen3_moe, found [0-9]+ others: 'model.layers.2", num_hidden_layers=2)
    refused("num_experts_per_tok: expected at most 6, got 7", num_experts_per_tok=7)
    refused("num_key_value_heads: expected a divisor of 6, got 4", num_key_value_heads=4)
    refused("rms_norm_eps: expected a number, got 'small'", rms_norm_eps="small")
    refused("mlp_only_layers: expected a list of int, got \\['1'\\]", mlp_only_layers=["1"])
    refused("sliding_window: expected a count, got None", use_sliding_window=True)
    refused("hidden_act: expected silu, got 'gelu'", hidden_act="gelu")
    refused("rms_norm_eps: expected a number that is not negative, got -1", rms_norm_eps=-1)
    refused("head_dim: expected at most 512, got 520", head_dim=520)
