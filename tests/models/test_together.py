"""Conversations that read their tokens together, against the same conversations alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import pyturbo
from pyturbo.engine.session import Session
from pyturbo.engine.together import step_together
from pyturbo.model import Model, load
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_mlx

NAMES = sorted(MODELS | FP_MODELS)
KV = ("f32", "f16", "turbo8v4", "turbo4")
STEPS = 3

#: Fewer conversations have products of single rows on the CPU, whose bits do not depend on their number.
TILED = 8

#: Of the logits' standard deviation: products are added up in another order.
BOUND = 1e-4

#: Compressed rows may round the other way after such a difference.
COMPRESSED_BOUND = 0.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, device: str = "cpu", kv: str = "f16") -> Model:
    path = folder / name
    if not path.exists():
        write_mlx((MODELS | FP_MODELS)[name], path)
    return load(path, device, kv=kv)


def begun(model: Model, count: int, context: int = 64) -> list[Session]:
    """Return conversations at different positions, of two contexts."""
    rng = np.random.default_rng(7)
    sessions = []
    for i in range(count):
        session = model.session(context + 16 * (i % 2))
        session.prefill(rng.integers(0, model.network.vocab, 3 + 2 * i))
        sessions.append(session)
    return sessions


def tokens_of(model: Model, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(8).integers(0, model.network.vocab, (STEPS, count))


def alone(model: Model, count: int) -> NDArray[np.float32]:
    """Return the logits of each step of each conversation."""
    sessions, steps = begun(model, count), tokens_of(model, count)
    return np.array([[s.step(int(t)).copy() for s, t in zip(sessions, row)] for row in steps])


def together(model: Model, count: int) -> NDArray[np.float32]:
    sessions = begun(model, count)
    positions = [session.position for session in sessions]
    logits = []
    for row in tokens_of(model, count):
        step_together(sessions, row.tolist())
        logits.append([session.logits.copy() for session in sessions])
    assert [session.position for session in sessions] == [position + STEPS for position in positions]
    for session, column in zip(sessions, tokens_of(model, count).T):
        assert session.tokens[-STEPS:].tolist() == column.tolist()
    return np.array(logits)


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("name", NAMES)
def test_few_conversations_give_the_same_bits_on_the_cpu(folder: Path, name: str, kv: str) -> None:
    try:
        model = model_of(folder, name, kv=kv)
    except pyturbo.errors.ArgumentError:
        assert kv.startswith("turbo")  # heads that cannot be compressed
        return
    for count in (2, TILED - 1):
        np.testing.assert_array_equal(together(model, count), alone(model, count))


@pytest.mark.parametrize("name", NAMES)
def test_many_conversations_differ_by_rounding_only(folder: Path, name: str) -> None:
    model = model_of(folder, name, kv="f32")  # rows of fewer bits may round the other way
    want = alone(model, TILED + 2)
    assert np.abs(together(model, TILED + 2) - want).max() <= BOUND * want.std()


@pytest.mark.parametrize("device", [device for device in pyturbo.devices() if device != "cpu"])
@pytest.mark.parametrize("kv", ["f32", "turbo4"])
@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "qwen3_5_moe", "llama"])
def test_all_devices(folder: Path, name: str, kv: str, device: str) -> None:
    try:
        model = model_of(folder, name, device, kv)
    except pyturbo.errors.ArgumentError:
        assert kv == "turbo4"
        return
    want = alone(model, 3)
    bound = BOUND if kv == "f32" else COMPRESSED_BOUND
    assert np.abs(together(model, 3) - want).max() <= bound * want.std()


def test_programs_serve_every_order_of_contexts(folder: Path) -> None:
    model = model_of(folder, "llama")
    sessions = begun(model, 4)
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)):
        step_together([sessions[i] for i in order], [1, 2, 3, 4])
    assert list(model.runner._batches) == [(64, 64, 80, 80)]


def test_the_largest_logits_are_those_of_each_conversation(folder: Path) -> None:
    device = next(device for device in pyturbo.devices() if pyturbo.Device(device).traits.top_logits)
    model = model_of(folder, "llama", device)
    sessions = begun(model, 3)
    step_together(sessions, [1, 2, 3])
    greedy = [session._sample(pyturbo.Sampler(temperature=0))[0] for session in sessions]
    assert greedy == [int(session.logits.argmax()) for session in sessions]


def test_a_failed_step_ends_every_conversation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(folder, "llama")
    sessions = begun(model, 2)

    def fail(*args: object) -> None:
        raise pyturbo.errors.DeviceError("no more")

    monkeypatch.setattr("pyturbo.engine.batch.BatchGraph.run", fail)
    with pytest.raises(pyturbo.errors.DeviceError, match="no more"):
        step_together(sessions, [1, 2])
    for session in sessions:
        with pytest.raises(pyturbo.errors.StateError, match="cannot go on after: no more"):
            session.step(1)
