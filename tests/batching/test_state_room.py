"""The memory for conversations of a server that was told nothing about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyturbo._traits import DeviceMemory
from pyturbo.batching import state_room

GB = 10**9


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_room, "available_memory", lambda: 16 * GB)


def model(memory: DeviceMemory | None = None, budget: object | None = None) -> Any:
    """A model whose conversations take a megabyte for each token, and have room for at least 512."""
    runner = SimpleNamespace(
        budget=budget,
        context_for=lambda tokens: max(512, tokens),
        layout=lambda context: SimpleNamespace(nbytes=context * GB // 1000),
    )
    return SimpleNamespace(runner=runner, device=SimpleNamespace(memory=memory))


@pytest.mark.parametrize(("weights", "room"), [(0, 8), (6, 5), (12, 2), (13, 2), (400, 2)])
def test_half_of_what_weights_leave_and_an_eighth_at_least(weights: int, room: int) -> None:
    assert state_room.free_for_states(weights * GB) == room * GB


def test_models_share_it() -> None:
    assert state_room.state_room(model(), 6 * GB, 3, 1000) == 2 * GB


@pytest.mark.parametrize("memory", [None, DeviceMemory(80 * GB, 2 * GB)], ids=["host", "device"])
@pytest.mark.parametrize(("context", "room"), [(100, 0.512), (1500, 1.5), (40_000, 40)])
def test_one_conversation_always_has_room(memory: DeviceMemory | None, context: int, room: float) -> None:
    assert state_room.state_room(model(memory), GB, 3, context) == room * GB


def test_memory_of_a_device() -> None:
    assert state_room.state_room(model(DeviceMemory(80 * GB, 60 * GB)), 6 * GB, 2, 1000) == 15 * GB


def test_a_model_with_a_budget_refuses_conversations_itself() -> None:
    assert state_room.state_room(model(budget=object()), 6 * GB, 1, 1000) is None
