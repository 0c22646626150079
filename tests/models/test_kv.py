"""Sessions with a compressed cache, of tiny models of every architecture.

What is exact: tokens that are read together see each other's keys and values as they are, so one chunk from a
fresh state has the logits of an uncompressed cache. The last 16 tokens before a chunk are seen rounded to
float16, everything before them as its rows decode, by the float64 codec of tests/reference.

Does not catch: what compression does to a trained model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo import ops, turbo_codec
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.model import Model, load
from reference import turbo as reference
from session_files import change, parts
from tiny_configs import MODELS
from tiny_models import write_hf

NAMES = sorted(name for name in MODELS if name != "deepseek_v3_plain")  # its latents have 192 values
WITH_HEADS = [name for name in NAMES if name != "deepseek_v3"]
GOLDENS = Path(__file__).parent.parent / "goldens" / "models"

#: Mean squared error of a coordinate by width, twice that of normal variables: these have few vectors.
DISTORTIONS = {8: 1e-4, 4: 0.02, 2: 0.24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, kv: str, device: str = "cpu") -> Model:
    path = folder / name
    if not path.exists():
        write_hf(MODELS[name], path)
    return load(path, device, kv=kv)


def widths(kv: str) -> tuple[int, int]:
    """Bits of keys and of values."""
    keys, _, values = kv.removeprefix("turbo").partition("v")
    return int(keys), int(values or keys)


def caches(session: Session) -> dict[str, ops.TurboRows]:
    """The rows of every layer's keys and values, or of its latents, by name of the piece."""
    state, (keys, values) = session.state, widths(session._runner.kv.name)
    found = {}
    for mixer in (layer.mixer for layer in session._runner.network.layers):
        for part, bits in (("k", keys), ("v", values), ("latents", keys)):
            piece = f"{mixer.name}.{part}"
            if piece in state:
                dim = mixer.rank if part == "latents" else mixer.dim
                scales, means = state[f"{piece}_scales"], state.get(f"{piece}_means")
                recent = state[f"{piece}_recent"], state[f"{mixer.name}.recent_keys"]
                found[piece] = ops.TurboRows(state[piece], scales, bits, dim, means, *recent)
    return found


def decoded(rows: ops.TurboRows, tokens: np.ndarray) -> np.ndarray:
    """Vectors [tokens, kv_heads, dim] of these tokens."""
    at = tokens % rows.scales.shape[1]
    means = None if rows.means is None else rows.means[:, at]
    part = ops.TurboRows(rows.packed[:, at], rows.scales[:, at], rows.bits, rows.dim, means)
    signs = turbo_codec.signs(rows.dim)
    return reference.unrotate(reference.decode(part, signs), signs)


def recent(rows: ops.TurboRows, tokens: np.ndarray) -> np.ndarray:
    """The exact vectors [tokens, kv_heads, dim] of these tokens."""
    at = tokens % rows.recent_rows
    assert rows.recent_keys[at].tolist() == tokens.tolist()
    vectors = rows.recent[:, at].swapaxes(0, 1).astype(np.float64)
    return reference.unrotate(vectors, turbo_codec.signs(rows.dim))


def kl(want: np.ndarray, got: np.ndarray) -> float:
    """Mean divergence of distributions given by logits [tokens, vocab]."""
    want, got = (x - x.max(-1, keepdims=True) for x in (want.astype(np.float64), got.astype(np.float64)))
    want, got = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (want, got))
    return float((np.exp(want) * (want - got)).sum(-1).mean())


@pytest.mark.parametrize("name", NAMES)
def test_one_chunk_has_the_logits_of_the_reference_implementation(folder: Path, name: str) -> None:
    golden = np.load(GOLDENS / f"{name}.npz")
    want = golden["hf_logits"]
    got = model_of(folder, name, "turbo2").logits(golden["tokens"])
    assert np.abs(got - want).max() <= 2e-3 * want.std()


@pytest.mark.parametrize("name", WITH_HEADS)
def test_eight_bits_step_by_step_stay_with_the_reference_implementation(folder: Path, name: str) -> None:
    golden = np.load(GOLDENS / f"{name}.npz")
    losses = {}
    for kv in ("turbo8", "turbo2"):
        session = model_of(folder, name, kv).session(96)
        got = np.stack([session.step(int(token)).copy() for token in golden["tokens"]])
        losses[kv] = kl(golden["hf_logits"], got)
    assert losses["turbo8"] <= 0.005
    assert losses["turbo2"] > 10 * losses["turbo8"]


def overwrite(session: pyturbo.Session, piece: str, values: np.ndarray) -> None:
    """Change a piece of the state, wherever it is."""
    state = session._state
    state.layout.piece(state.block, piece).write(values)


CASES = [(name, "turbo4v2", "cpu") for name in NAMES] + [
    (name, kv, device)
    for name in ("qwen2", "deepseek_v3")
    for kv in ("turbo8", "turbo4v2")
    for device in pyturbo.devices()
    if device != "cpu"
]


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kv", "device"), CASES)
def test_chunks_see_what_the_rows_before_them_decode_to(
    folder: Path, name: str, kv: str, device: str
) -> None:
    """An uncompressed session whose older rows are overwritten by what the compressed ones stand for."""
    tokens = np.load(GOLDENS / f"{name}.npz")["tokens"]
    compressed = model_of(folder, name, kv, device).session(100)
    exact = model_of(folder, name, "f32", device).session(100)
    position = 0
    for end in (1, 10, 50, 51, 81) if device == "cpu" else (1, 10, 44, 45, 50):
        while position < end:
            with compressed._runner.program(100, end - position, "last") as (count, _):
                pass
            chunk = tokens[position : position + count]
            want, got = exact.prefill(chunk), compressed.prefill(chunk)
            assert np.abs(got - want).max() <= 1e-3 * want.std()
            for piece, rows in caches(compressed).items():
                new = np.arange(position, position + count)[-rows.scales.shape[1] :]
                vectors = exact.state[piece][new]
                kept = decoded(rows, new).reshape(vectors.shape)
                error = ((kept - vectors) ** 2).sum() / (vectors**2).sum()
                assert error <= DISTORTIONS[rows.bits]
                end_of_chunk = position + count
                last = np.arange(max(0, end_of_chunk - 16), end_of_chunk)[-rows.scales.shape[1] :]
                np.testing.assert_allclose(
                    recent(rows, last[last >= position]).reshape(-1, *vectors.shape[1:]),
                    exact.state[piece][last[last >= position]],
                    rtol=0,
                    atol=2**-10 * np.abs(vectors).max(),
                )
                seen = np.arange(max(0, end_of_chunk - rows.scales.shape[1]), end_of_chunk)
                array = exact.state[piece].copy()
                array[seen] = decoded(rows, seen).reshape(-1, *vectors.shape[1:])
                array[last] = recent(rows, last).reshape(-1, *vectors.shape[1:])
                overwrite(exact, piece, array)
            for piece, keys in compressed.state.items():
                if piece.endswith("rope_keys"):  # rounded to float16 beside compressed latents
                    array = exact.state[piece].copy()
                    kept = keys[position : position + count].astype(np.float32)
                    np.testing.assert_allclose(
                        kept, array[position : position + count], rtol=2**-11, atol=1e-4
                    )
                    array[position : position + count] = kept
                    overwrite(exact, piece, array)
            position += count


@pytest.mark.parametrize("name", NAMES)
def test_forks_and_saved_sessions_go_on_with_the_same_bits(folder: Path, tmp_path: Path, name: str) -> None:
    model = model_of(folder, name, "turbo4v2")
    session = model.session(40)
    session.prefill([5, 6, 7, 8])
    session.step(9)
    session.save(tmp_path / "chat.session")
    other, fork = model_of(folder, name, "turbo4v2").load_session(tmp_path / "chat.session"), session.fork()
    want = session.prefill([11, 12]).copy()
    for copy in (other, fork):
        assert copy.prefill([11, 12]).tobytes() == want.tobytes()
        for piece, array in session.state.items():
            assert copy.state[piece].tobytes() == array.tobytes(), piece


def test_files_of_another_setting_or_codec_are_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.session"
    model = model_of(folder, "qwen3", "turbo4")
    model.session(8).save(path)
    for kv in ("f16", "turbo8", "turbo4v2"):
        with pytest.raises(FormatError, match=f"chat.session: kv: expected '{kv}', got 'turbo4'"):
            model_of(folder, "qwen3", kv).load_session(path)
    assert parts(path)[0]["codec"] == turbo_codec.VERSIONS[4]
    for codec, reason in ((77, ""), (1, ": its keys and values were compressed by an earlier pyturbo")):
        change(path, codec=codec)
        with pytest.raises(FormatError, match=f"codec: expected 3, got {codec}{reason}$"):
            model.load_session(path)
    model_of(folder, "qwen3", "f16").session(8).save(path)
    assert parts(path)[0]["codec"] is None


@pytest.mark.parametrize(("kv", "codec"), [("turbo8", 4), ("turbo8v4", 4), ("turbo4v8", 4), ("turbo6v4", 3)])
def test_a_width_has_a_version(folder: Path, tmp_path: Path, kv: str, codec: int) -> None:
    """Codes of 8 bits changed last: files without them are still read."""
    path = tmp_path / "chat.session"
    model = model_of(folder, "qwen3", kv)
    model.session(8).save(path)
    assert parts(path)[0]["codec"] == codec
    model.load_session(path)
    if codec > 3:
        change(path, codec=3)
        with pytest.raises(FormatError, match="codec: expected 4, got 3: .* by an earlier pyturbo$"):
            model.load_session(path)


@pytest.mark.parametrize("name", WITH_HEADS)
@pytest.mark.parametrize("kv", ["turbo8", "turbo6v3", "turbo4v2"])
def test_memory_is_that_of_the_formula(folder: Path, name: str, kv: str) -> None:
    """4 ceil(dim bits / 32) bytes for codes and 2 for a scale; 2 more for a mean where there are biases.

    The last 16 vectors of a layer's heads are kept in float16 too.
    """
    text, context = MODELS[name].text, 90
    heads, dim = text["num_key_value_heads"], text.get("head_dim") or text["hidden_size"] // 6
    layers = text["num_hidden_layers"] // text.get("full_attention_interval", 1)
    windowed = text.get("layer_types", []).count("sliding_attention")
    vectors = heads * (context * (layers - windowed) + (text.get("sliding_window") or 0) * windowed)
    biased = text["model_type"] in ("qwen2", "gpt_oss")
    pieces = model_of(folder, name, kv).session(context).memory().pieces
    for part, bits in zip("kv", widths(kv)):
        assert pieces[part] == vectors * 4 * -(-dim * bits // 32)
        assert pieces[f"{part}_scales"] == vectors * 2
        assert pieces.get(f"{part}_means", 0) == (vectors * 2 if biased else 0)
        assert pieces[f"{part}_recent"] == layers * heads * 16 * dim * 2
    assert pieces["recent_keys"] == layers * 16 * 4


@pytest.mark.parametrize("kv", ["turbo8", "turbo6v3", "turbo4v2"])
def test_memory_of_latents_is_that_of_the_formula(folder: Path, kv: str) -> None:
    """A latent is one row with the bits of keys, whatever those of values are; its rotary key is float16."""
    text, context = MODELS["deepseek_v3"].text, 90
    rows, bits = context * text["num_hidden_layers"], widths(kv)[0]
    pieces = model_of(folder, "deepseek_v3", kv).session(context).memory().pieces
    assert pieces["latents"] == rows * 4 * -(-text["kv_lora_rank"] * bits // 32)
    assert pieces["latents_scales"] == rows * 2
    assert pieces["latents_recent"] == text["num_hidden_layers"] * 16 * text["kv_lora_rank"] * 2
    assert pieces["recent_keys"] == text["num_hidden_layers"] * 16 * 4
    assert pieces["rope_keys"] == rows * text["qk_rope_head_dim"] * 2
    assert "k" not in pieces


def coding_error(vectors: np.ndarray, bits: int) -> float:
    codes, scales, _ = reference.encode(vectors, bits)
    return float(np.square(reference.codebook(bits)[codes] * scales[:, None] - vectors).sum())


def test_latents_step_by_step_lose_what_their_bits_say(folder: Path) -> None:
    """Small errors of latents move logits in proportion, and the divergence goes by their squares.

    Of the median token: one whose router takes another expert moves by far more. Bits of values have no part.
    """
    golden = np.load(GOLDENS / "deepseek_v3.npz")
    logits = {}
    for kv in ("turbo8", "turbo6", "turbo4", "turbo4v2"):
        session = model_of(folder, "deepseek_v3", kv).session(96)
        logits[kv] = np.stack([session.step(int(token)).copy() for token in golden["tokens"]])
    assert logits["turbo4v2"].tobytes() == logits["turbo4"].tobytes()
    losses = {
        bits: np.median([kl(want, got) for want, got in zip(golden["hf_logits"], logits[f"turbo{bits}"])])
        for bits in (8, 6, 4)
    }
    assert losses[8] <= 0.005
    normal = np.random.default_rng(0).standard_normal((500, MODELS["deepseek_v3"].text["kv_lora_rank"]))
    for bits in (6, 4):
        ratio = coding_error(normal, bits) / coding_error(normal, 8)
        assert ratio / 2 <= losses[bits] / losses[8] <= ratio * 2


def test_names_of_settings(folder: Path) -> None:
    assert model_of(folder, "qwen3", "turbo8v8").kv == "turbo8"
    assert "kv='turbo3v6'" in repr(model_of(folder, "qwen3", "turbo3v6"))
    for wrong in (
        "f8",
        "turbo",
        "turbo5",
        "turbo4v",
        "turbo4v5",
        "turbo44",
        "Turbo4",
        "turbo4v2 ",
        "",
        None,
        8,
    ):
        with pytest.raises(ArgumentError) as caught:
            model_of(folder, "qwen3", wrong)  # type: ignore[arg-type]
        assert str(caught.value) == (
            "kv: expected one of f32, f16, turbo<k> and turbo<k>v<v> with k and v of 2, 3, 4, 6 and 8 "
            f"bits, got {wrong!r}"
        )


def test_heads_that_the_codec_does_not_know(tmp_path: Path) -> None:
    tiny = MODELS["llama"]
    path = write_hf(replace(tiny, config=tiny.config | {"head_dim": 72}), tmp_path / "model")
    assert load(path, kv="f16").session(4).step(1).size == 229
    with pytest.raises(ArgumentError, match="heads of other than 64, 80, .* values, got turbo4 for 72"):
        load(path, kv="turbo4")
    path = write_hf(MODELS["deepseek_v3_plain"], tmp_path / "latents")
    with pytest.raises(ArgumentError, match="latents of other than 64, 80, .* values, got turbo4 for 192"):
        load(path, kv="turbo4")
