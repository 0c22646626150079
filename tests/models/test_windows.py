"""Layers with a sliding window: their caches are rings that hold no more than the window needs.

What a ring gives is compared with a cache of the whole context, which differs only in where rows lie. That
the mask itself is right is for the goldens of these models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyturbo.checkpoint.entries import Entries
from pyturbo.engine.session import Session
from pyturbo.errors import FormatError
from pyturbo.layers.config import FULL, SLIDING
from pyturbo.layers.windows import layer_windows, upper_windows
from pyturbo.model import Model, load
from session_files import change, parts
from tiny_configs import MODELS
from tiny_models import write_hf

CONTEXT = 150
WINDOWED = "model.layers.2.self_attn"  # in both models
HEADS, DIM = 2, 64
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 180, CONTEXT)]
CHUNKS = (1, 8, 7, 1, 8, 8, 3, 8, 8, 1, 1, 6, 8, 8)  # several times the window


@pytest.fixture(scope="module", params=["qwen2_windows", "gpt_oss"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf(MODELS[request.param], tmp_path_factory.mktemp("models") / request.param)


def sizes(path: Path) -> tuple[int, int]:
    """The window, and how many layers have it beside one that sees everything."""
    text = MODELS[path.name].text
    return text["sliding_window"], text["num_hidden_layers"] - 1


def model_of(path: Path, chunk: int, kv: str = "f32") -> Model:
    """A model that reads up to `chunk` tokens at once."""
    model = load(path, "cpu", kv=kv)
    model.runner.traits = model.runner.traits._replace(chunk=chunk, single=2)
    return model


def read(session: Session) -> np.ndarray:
    """Logits after each of CHUNKS."""
    rows, position = [], 0
    for count in CHUNKS:
        rows.append(session.prefill(TOKENS[position : position + count]).copy())
        position += count
    return np.stack(rows)


@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_a_ring_gives_what_the_whole_context_gives(path: Path, kv: str) -> None:
    ring = model_of(path, chunk=8, kv=kv).session(CONTEXT)
    whole = model_of(path, chunk=CONTEXT, kv=kv).session(CONTEXT)
    assert len(ring.state[f"{WINDOWED}.k"]) == sizes(path)[0] + 7 < sum(CHUNKS) / 2
    assert len(whole.state[f"{WINDOWED}.k"]) == CONTEXT
    got, want = read(ring), read(whole)
    assert np.abs(got - want).max() <= 1e-5 * want.std()


@pytest.mark.parametrize(("kv", "bytes_per_row"), [("f32", 4 * DIM), ("f16", 2 * DIM)])
def test_memory_of_a_window_is_that_of_the_formula(path: Path, kv: str, bytes_per_row: int) -> None:
    model, (window, windowed) = model_of(path, chunk=16, kv=kv), sizes(path)
    for context in (window - 1, window + 15, window + 16, 512):
        rows = context + windowed * min(context, window + 15)
        pieces = model.session(context).memory().pieces
        assert pieces["k"] == pieces["v"] == rows * HEADS * bytes_per_row


def test_compressed_rows_of_a_window_do_not_depend_on_chunks(path: Path) -> None:
    window, windowed = sizes(path)
    vectors = HEADS * (CONTEXT + windowed * window)
    for chunk in (8, 64):
        pieces = model_of(path, chunk, "turbo4").session(CONTEXT).memory().pieces
        assert pieces["k"] == pieces["v"] == vectors * DIM // 2
        assert pieces["k_scales"] == pieces["k_means"] == vectors * 2


@pytest.mark.parametrize("kv", ["f32", "f16", "turbo8", "turbo4v2"])
def test_forks_and_saved_sessions_after_the_ring_went_round(path: Path, tmp_path: Path, kv: str) -> None:
    model = model_of(path, chunk=8, kv=kv)
    session = model.session(CONTEXT)
    read(session)
    session.save(tmp_path / "chat.session")
    fork, restored = session.fork(), model.load_session(tmp_path / "chat.session")
    rest = TOKENS[session.position :]
    want = session.prefill(rest).copy()
    for copy in (fork, restored):
        assert copy.prefill(rest).tobytes() == want.tobytes()
        for piece, array in session.state.items():
            assert copy.state[piece].tobytes() == array.tobytes(), piece


@pytest.mark.parametrize("kv", ["f32", "turbo4"])
@pytest.mark.parametrize(("here", "there"), [(8, 20), (20, 8), (8, CONTEXT), (CONTEXT, 8)])
@pytest.mark.parametrize("count", [5, 37, 90])
def test_a_device_with_other_chunks_goes_on(
    path: Path, tmp_path: Path, kv: str, here: int, there: int, count: int
) -> None:
    session = model_of(path, here, kv).session(CONTEXT)
    session.prefill(TOKENS[:count])
    session.save(tmp_path / "chat.session")
    restored = model_of(path, there, kv).load_session(tmp_path / "chat.session")
    for token in TOKENS[count : count + 30]:
        want, got = session.step(token), restored.step(token)
        assert np.abs(got - want).max() <= 1e-5 * want.std()


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
@pytest.mark.parametrize("count", [9, 70])
def test_another_context_goes_on_with_the_same_bits(path: Path, tmp_path: Path, kv: str, count: int) -> None:
    """Before a ring of the context's size went round, and after one of the window's size did."""
    model = model_of(path, 8, kv)
    session = model.session({9: 10, 70: CONTEXT}[count])
    session.prefill(TOKENS[:count])
    session.save(tmp_path / "chat.session")
    larger = model.load_session(tmp_path / "chat.session", context=CONTEXT + 3)
    want = model.session(CONTEXT + 3)
    want.prefill(TOKENS[:count])
    for token in TOKENS[count : count + 60]:
        assert larger.step(token).tobytes() == want.step(token).tobytes()


def test_wrong_chunks_in_files(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.session"
    model = model_of(path, chunk=8)
    model.session(CONTEXT).save(file)
    assert parts(file)[0]["chunk"] == 8
    for chunk in (0, "8", None, 2**31):
        change(file, chunk=chunk)
        with pytest.raises(FormatError, match=f"chunk: expected a count, got {chunk!r}"):
            model.load_session(file)
    session = model.session(CONTEXT)
    read(session)
    session.save(file)
    change(file, chunk=9)
    with pytest.raises(FormatError, match="state_bytes: expected [0-9]+, got [0-9]+"):
        model.load_session(file)


def entries(**values: object) -> Entries:
    return Entries("config.json", {"num_hidden_layers": 4, "max_position_embeddings": 512} | values)


def test_which_layers_have_a_window() -> None:
    kinds = [SLIDING, FULL, FULL, SLIDING]
    sized = {"use_sliding_window": True, "sliding_window": 9}
    assert upper_windows(entries()) == [0, 0, 0, 0]
    assert upper_windows(entries(sliding_window=9, max_window_layers=1)) == [0, 0, 0, 0]
    assert upper_windows(entries(**sized)) == [0, 0, 0, 0]
    assert upper_windows(entries(**sized, max_window_layers=1)) == [0, 9, 9, 9]
    assert upper_windows(entries(**sized, max_window_layers=0)) == [9, 9, 9, 9]
    assert upper_windows(entries(**sized, max_window_layers=3), first=2) == [0, 0, 9, 9]
    assert upper_windows(entries(**sized, max_window_layers=1, layer_types=kinds)) == [9, 0, 0, 9]
    assert upper_windows(entries(sliding_window=600, layer_types=kinds)) == [512, 0, 0, 512]
    assert layer_windows(entries(sliding_window=9), [FULL, SLIDING, FULL, SLIDING]) == [0, 9, 0, 9]
    for wrong, message in (
        ({"layer_types": kinds}, "sliding_window: expected a count, got None"),
        ({"layer_types": kinds[1:], **sized}, "layer_types: expected 4 of full_attention or sliding_att"),
        ({"layer_types": ["chunked"] * 4}, "layer_types: expected 4 of full_attention or sliding_attention"),
        (
            {"layer_types": kinds, "sliding_window": 9, "use_sliding_window": False},
            "use_sliding_window: expected true beside layers of sliding_attention, got False",
        ),
    ):
        with pytest.raises(FormatError, match=message):
            upper_windows(entries(**wrong))
