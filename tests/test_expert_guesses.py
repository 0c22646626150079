"""The expert store: records that are read before their layer is known to need them."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import numpy as np
import pytest

from expert_files import STRIDE, Replays
from pyturbo import _native_tests
from pyturbo.errors import FileError, StateError

pytestmark = pytest.mark.usefixtures("plain_reads")


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 3, 6, 12, 30])
def test_guesses_change_no_result(tmp_path: Path, slots: int, mapped: bool) -> None:
    """Whatever an earlier layer expects, each chosen expert is computed once, with its own bytes."""
    rng = np.random.default_rng(slots)
    experts = (7, 5, 9)
    options = {} if mapped else {"staging": slots // 3}
    replays = Replays(tmp_path, experts, slots=slots, mapped=mapped, threads=3, split=4096, **options)
    with replays.store:
        for _ in range(60):
            choices = [rng.choice(count, 3, replace=False) for count in experts]
            right, wrong = choices[1:], [rng.choice(count, 3, replace=False) for count in experts[1:]]
            guesses = [pair[rng.integers(2)] if rng.random() < 0.8 else () for pair in zip(right, wrong)]
            replays.replay(*choices, guesses=guesses)
        stats = replays.store.stats()
    assert stats[0]["guessed"] == 0
    assert mapped or slots < 6 or all(layer["guessed"] > 0 for layer in stats[1:])
    assert all(layer["guessed"] <= layer["requests"] for layer in stats)


@pytest.mark.parametrize("staging", [1, 2, 3])
def test_guesses_under_way_leave_room(tmp_path: Path, staging: int) -> None:
    """Staging slots may all have guesses that nobody needs; what a layer needs waits for one of them."""
    replays = Replays(tmp_path, (20, 20), slots=3 + staging, staging=staging, half_life=1000)
    with replays.store:
        for _ in range(9):
            replays.replay([0, 1], [0])  # three experts that no other one replaces
        _native_tests.fail_reads("slow", 30)
        for step in range(4):
            guesses = [[3 + step, 4 + step, 5 + step]]
            replays.replay([0, 1], [0, 12 + step, 13 + step, 14 + step], guesses=guesses)
        assert {(0, 0), (0, 1), (1, 0)} <= set(replays.cached())


def test_a_right_guess_is_read_before_its_layer(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=10, threads=1)
    with replays.store:
        replays.replay([0, 1], [2, 3], guesses=[[2, 3]])
        first, second = replays.store.stats()
        assert (first["requests"], first["guessed"]) == (2, 0)
        assert (second["requests"], second["guessed"]) == (2, 2)
        replays.replay([0, 1], [2, 4], guesses=[[4]])
        second = replays.store.stats()[1]
        assert (second["requests"], second["guessed"]) == (4, 3)
        assert second["bytes"] == 3 * STRIDE


def test_time_is_that_of_the_layer_whose_experts_are_read(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=10, threads=3)
    with replays.store:
        _native_tests.fail_reads("slow", 40)
        begun = time.perf_counter()
        replays.replay([0, 1], [3], guesses=[[3]])  # three reads at once
        ended = time.perf_counter()
        first, second = (layer["read_seconds"] for layer in replays.store.stats())
    assert 0.04 <= first + second <= ended - begun
    assert second >= 0.04 / 3
    assert first >= 0.08 / 3


def test_a_wrong_guess_that_fails_is_no_error(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=10, threads=1)
    with replays.store:
        replays.replay([0, 1], [2, 3])
        _native_tests.fail_reads("error", errno.EBADF)
        replays.replay([0, 1], [2, 3], guesses=[[4]])
        with pytest.raises(FileError, match="layer-001.bin: expert 4"):
            replays.replay([0, 1], [4], guesses=[[4]])
        _native_tests.plain_reads()
        replays.replay([0, 1], [4])


def test_reads_ahead_end_with_the_store(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=10, threads=1)
    replays.replay([0], [2], guesses=[[1, 3, 4]])
    replays.store.resize(3)
    replays.replay([0, 1], [2], guesses=[[0, 4]])
    replays.store.close()
    with pytest.raises(StateError):
        replays.replay([2], [1], guesses=[[1]])
