"""Embeddings of tiny models against float64 NumPy, from the outputs of their last layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import pyturbo
from pyturbo.errors import ArgumentError, ContextError
from pyturbo.model import Model
from tiny_configs import MODELS
from tiny_models import write_mlx

#: Of a coordinate's share of the length: norms of the program and of `layer_outputs` add in another order.
BOUND = 1e-5
LENGTHS = (1, 7, 70)  # one token, a part of a chunk, more than one chunk of some devices


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded")


def model_of(folder: Path, name: str, device: str) -> Model:
    path = folder / name
    if not path.exists():
        write_mlx(MODELS[name], path)
    return pyturbo.load(path, device, kv="f32")


def states_of(model: Model, ids: NDArray[np.int32]) -> NDArray[np.float64]:
    norm, x = model.network.norm, model.layer_outputs(ids)[-1].astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + norm.eps) * np.asarray(norm.weight, np.float64)


def reference(states: NDArray[np.float64], pooling: str) -> NDArray[np.float64]:
    pooled = states[-1] if pooling == "last" else states.mean(axis=0)
    return pooled / np.linalg.norm(pooled)


@pytest.mark.spread
@pytest.mark.parametrize("device", pyturbo.devices())
@pytest.mark.parametrize("name", sorted(MODELS))
def test_embeddings_are_pooled_states(folder: Path, name: str, device: str) -> None:
    model, random = model_of(folder, name, device), np.random.default_rng(5)
    lengths = LENGTHS if device == "cpu" else LENGTHS[:2]
    listed = [random.integers(0, model.network.vocab, length, np.int32) for length in lengths]
    states = [states_of(model, ids) for ids in listed]
    for pooling in ("mean", "last"):
        got = model.embed([ids.tolist() for ids in listed], pooling)  # type: ignore[arg-type]
        assert (got.dtype, got.shape) == (np.float32, (len(listed), len(model.network.norm.weight)))
        want = np.stack([reference(each, pooling) for each in states])
        assert np.abs(got - want).max() <= BOUND
        if device != "cpu" and pooling == "last":
            continue  # what follows is about how texts are read, which does not depend on the pooling
        again = model.embed(listed[1], pooling)  # type: ignore[arg-type]
        assert (again[0] == got[1]).all()
        pieces = model.embed(listed[1], pooling, piece=3)  # type: ignore[arg-type]
        assert np.abs(pieces[0] - want[1]).max() <= BOUND


def test_chunks_do_not_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of several chunks is read without all of its states in memory."""
    model = model_of(folder, sorted(MODELS)[0], "cpu")
    ids = np.random.default_rng(6).integers(0, model.network.vocab, 100, np.int32)
    monkeypatch.setattr(model.runner, "traits", model.runner.traits._replace(chunk=32))
    states = states_of(model, ids)
    for pooling in ("mean", "last"):
        assert np.abs(model.embed(ids, pooling)[0] - reference(states, pooling)).max() <= BOUND  # type: ignore[arg-type]


def test_a_function_is_asked_before_each_piece(folder: Path) -> None:
    model = model_of(folder, sorted(MODELS)[0], "cpu")
    ids, sizes = np.random.default_rng(6).integers(0, model.network.vocab, 20, np.int32), [3, 9, None]
    left: list[int | None] = [*sizes]
    got = model.embed(ids, piece=lambda: left.pop(0))  # type: ignore[arg-type]
    assert np.abs(got[0] - reference(states_of(model, ids), "mean")).max() <= BOUND
    assert not left
    left = [3]
    with pytest.raises(IndexError):
        model.embed(ids, piece=lambda: left.pop(0))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="piece: expected"):
        model.embed(ids, piece=lambda: 0)  # type: ignore[arg-type]


def test_texts_have_the_tokens_of_the_tokenizer() -> None:
    with pyturbo.load(device="cpu") as model:
        texts = ["Once upon a time", "The cat"]
        both = model.embed(texts)
        for text, vector in zip(texts, both):
            assert (model.embed(text)[0] == vector).all()
            assert (model.embed(model.tokenizer.encode(text))[0] == vector).all()
            assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
        with pytest.raises(ContextError, match="texts: expected at most 2048 tokens, got 2049"):
            model.embed([1] * 2049)
        for wrong in ([], "", [[]], 3, None, [1.5], [None], [-1], [10**9], ["a", 3], b"x"):
            with pytest.raises(ArgumentError, match="texts: expected"):
                model.embed(wrong)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="pooling: expected mean or last, got 'max'"):
            model.embed("a", "max")  # type: ignore[arg-type]
