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
    return SimpleNamespace(runner=SimpleNamespace(budget=budget), device=SimpleNamespace(memory=memory))


@pytest.mark.parametrize(("weights", "room"), [(0, 8), (6, 5), (12, 2), (13, 2), (400, 2)])
def test_half_of_what_weights_leave_and_an_eighth_at_least(weights: int, room: int) -> None:
    assert state_room.free_for_states(weights * GB) == room * GB


def test_models_share_it() -> None:
    assert state_room.state_room(model(), 6 * GB, 3) == 2 * GB
    assert state_room.state_room(model(), 0, 1) == 1  # a limit, not none


def test_memory_of_a_device() -> None:
    assert state_room.state_room(model(DeviceMemory(80 * GB, 60 * GB)), 6 * GB, 2) == 15 * GB


def test_a_model_with_a_budget_refuses_conversations_itself() -> None:
    assert state_room.state_room(model(budget=object()), 6 * GB, 1) is None
