"""Conversations that read their tokens together, against the same conversations alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import pyturbo
from pyturbo.engine.runner import MANY, PROMPTS
from pyturbo.engine.session import Session
from pyturbo.engine.together import read_together, step_together
from pyturbo.model import Model, load
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_mlx
from tolerances import TOLERANCES

NAMES = sorted(MODELS | FP_MODELS)
KV = ("f32", "f16", "turbo8v4", "turbo4")
STEPS = 3

#: Fewer conversations have products of single rows on the CPU, whose bits do not depend on their number.
TILED = 8

#: Of the logits' standard deviation: products are added up in another order, in a few layers.
BOUND = 50 * TOLERANCES["f32"]["long dot"]

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


def begun(model: Model, count: int, contexts: tuple[int, ...] = (64, 80)) -> list[Session]:
    """Return conversations at different positions, of each of the contexts in turn."""
    rng = np.random.default_rng(7)
    sessions = []
    for i in range(count):
        session = model.session(contexts[i % len(contexts)])
        session.prefill(rng.integers(0, model.network.vocab, 3 + 2 * i))
        sessions.append(session)
    return sessions


def forks(sessions: list[Session]) -> list[Session]:
    return [session.fork() for session in sessions]


def tokens_of(model: Model, count: int) -> NDArray[np.int64]:
    return np.random.default_rng(8).integers(0, model.network.vocab, (STEPS, count))


def alone(model: Model, sessions: list[Session]) -> NDArray[np.float32]:
    """Return the logits of each step of each conversation."""
    steps = tokens_of(model, len(sessions))
    return np.array([[s.step(int(t)).copy() for s, t in zip(sessions, row)] for row in steps])


def together(model: Model, sessions: list[Session]) -> NDArray[np.float32]:
    steps, positions = tokens_of(model, len(sessions)), [session.position for session in sessions]
    logits = []
    for row in steps:
        step_together(sessions, row.tolist())
        logits.append([session.logits.copy() for session in sessions])
    assert [session.position for session in sessions] == [position + STEPS for position in positions]
    for session, column in zip(sessions, steps.T):
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
        sessions = begun(model, count)
        np.testing.assert_array_equal(together(model, forks(sessions)), alone(model, sessions))


@pytest.mark.parametrize("name", NAMES)
def test_many_conversations_differ_by_rounding_only(folder: Path, name: str) -> None:
    model = model_of(folder, name, kv="f32")  # rows of fewer bits may round the other way
    sessions = begun(model, TILED + 2)
    got, want = together(model, forks(sessions)), alone(model, sessions)
    assert np.abs(got - want).max() <= BOUND * want.std()


@pytest.mark.spread
@pytest.mark.parametrize("device", [device for device in pyturbo.devices() if device != "cpu"])
@pytest.mark.parametrize("kv", ["f32", "turbo4"])
@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "qwen3_5_moe", "llama"])
def test_all_devices(folder: Path, name: str, kv: str, device: str) -> None:
    try:
        model = model_of(folder, name, device, kv)
    except pyturbo.errors.ArgumentError:
        assert kv == "turbo4"
        return
    sessions = begun(model, 3)
    got, want = together(model, forks(sessions)), alone(model, sessions)
    bound = BOUND if kv == "f32" else COMPRESSED_BOUND
    assert np.abs(got - want).max() <= bound * want.std()


def pieces_of(model: Model, sizes: list[int]) -> list[NDArray[np.int32]]:
    rng = np.random.default_rng(9)
    return [rng.integers(0, model.network.vocab, size).astype(np.int32) for size in sizes]


def differences(model: Model, steps: int, prompts: list[int]) -> list[float]:
    """Return how far logits are from those alone, after a pass with pieces of prompts and one of steps."""
    found = []
    alone = [*begun(model, steps, (128,)), *(model.session(128) for _ in prompts)]
    together = forks(alone)
    sizes = [*[1] * steps, *prompts]
    for turn in (sizes, [1] * len(sizes)):
        pieces = pieces_of(model, turn)
        want = np.array([s.prefill(piece).copy() for s, piece in zip(alone, pieces)])
        read_together(together, pieces, [True] * len(turn))
        got = np.array([session.logits for session in together])
        assert [s.position for s in together] == [s.position for s in alone]
        assert [s.tokens.tolist() for s in together] == [s.tokens.tolist() for s in alone]
        found.append(float(np.abs(got - want).max() / want.std()))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_pieces_of_prompts_differ_by_rounding_only(folder: Path, name: str) -> None:
    model = model_of(folder, name, kv="f32")
    sizes = [5, model.runner.piece, 2]
    assert max(differences(model, 10, sizes)) <= BOUND  # a program for 16 steps
    assert max(differences(model, 2, sizes)) <= BOUND  # the same one
    assert [room.steps for _, room in model.runner._mixed] == [16]


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("device", [device for device in pyturbo.devices() if device != "cpu"])
@pytest.mark.parametrize("kv", ["f32", "turbo4"])
@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss", "qwen3_5_moe", "llama"])
def test_steps_and_pieces_on_all_devices(folder: Path, name: str, kv: str, device: str) -> None:
    try:
        model = model_of(folder, name, device, kv)
    except pyturbo.errors.ArgumentError:
        assert kv == "turbo4"
        return
    bound = BOUND if kv == "f32" else COMPRESSED_BOUND
    assert max(differences(model, 2, [7, 3])) <= bound


def test_a_piece_that_does_not_end_leaves_the_logits_alone(folder: Path) -> None:
    model = model_of(folder, "llama", kv="f32")
    first, second = (model.session(64) for _ in range(2))
    first.prefill([1, 2])
    before = first.logits.copy()
    tokens = np.arange(9, dtype=np.int32)
    read_together([first, second], [tokens, tokens], [False, True])
    np.testing.assert_array_equal(first.logits, before)
    read_together([first], [tokens], [False])  # nobody wants logits
    np.testing.assert_array_equal(first.logits, before)
    assert np.abs(second.logits - model.session(64).prefill(tokens)).max() <= BOUND * before.std()


@pytest.mark.parametrize("device", pyturbo.devices())
def test_a_single_token_always_ends(folder: Path, device: str) -> None:
    model = model_of(folder, "llama", device, kv="f32")
    alone, together = ([model.session(64) for _ in range(2)] for _ in range(2))
    for session in (alone[0], together[0]):
        session.prefill([1, 2, 3])
    pieces = pieces_of(model, [1, 2])
    want = np.array([session.prefill(piece).copy() for session, piece in zip(alone, pieces)])
    read_together(together, pieces, [False, True])
    got = np.array([session.logits for session in together])
    assert np.abs(got - want).max() <= BOUND * want.std()
    sampler = pyturbo.Sampler(temperature=0)
    assert [session._sample(sampler)[0] for session in together] == want.argmax(axis=1).tolist()


def test_programs_of_many_have_room_for_those_that_come_later(folder: Path) -> None:
    model = model_of(folder, "llama")
    sessions = [model.session(64) for _ in range(MANY + 1)]
    token = np.array([3], np.int32)
    for count in (1, MANY, MANY + 1, 2):
        read_together(sessions[:count], [token] * count, [True] * count)
    read_together(sessions[:2], [token] * 2, [True] * 2, room=3 * MANY)
    rooms = [(room.steps, room.prompts) for _, room in model.runner._mixed]
    assert sorted(rooms) == [(MANY, PROMPTS), (2 * MANY, PROMPTS), (4 * MANY, PROMPTS)]


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
