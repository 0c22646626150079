"""The simulation of slots against the store itself.

Replays that need more experts than there are slots are left out: what they leave in memory depends on the
order in which reads end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from expert_files import STRIDE, Replays
from pyturbo.streaming import Policy, RecordFile
from pyturbo.streaming.simulation import Misses, SlotSimulation
from pyturbo.streaming.speed import SHARES, simulated_reads

EXPERTS, TOP_K = (40, 30), 3


def choices(seed: int, tokens: int) -> list[list[np.ndarray]]:
    """Return the choices of each token in each layer, some experts being more likely than others."""
    rng = np.random.default_rng(seed)
    weights = [1 / np.arange(1, count + 1) for count in EXPERTS]
    return [[rng.choice(len(w), TOP_K, replace=False, p=w / w.sum()) for w in weights] for _ in range(tokens)]


@pytest.mark.parametrize("half_life", [2.0, 32.0])
@pytest.mark.parametrize("slots", [7, 16, 24, 50, 70])
def test_the_store_follows_the_same_rule(tmp_path: Path, slots: int, half_life: float) -> None:
    policy = Policy(threads=4, half_life=half_life)
    simulation = SlotSimulation(EXPERTS, slots, policy, TOP_K)
    staging = policy.staging_slots(slots, sum(EXPERTS))
    options = {"threads": 4, "half_life": half_life, "top_k": TOP_K, "staging": staging}
    replays = Replays(tmp_path, EXPERTS, slots=slots, **options)
    with replays.store:
        for token in choices(slots, 80):
            before = sum(layer["misses"] for layer in replays.store.stats())
            replays.replay(*token)
            after = sum(layer["misses"] for layer in replays.store.stats())
            uses = [np.bincount(ids, minlength=count) for ids, count in zip(token, EXPERTS)]
            misses = simulation.replay(uses)
            assert misses.again + misses.first == after - before


def test_few_slots_are_for_staging() -> None:
    assert [Policy(threads=4).staging_slots(slots, 100) for slots in (1, 7, 8, 63, 64, 99)] == [
        0,
        0,
        1,
        7,
        8,
        8,
    ]
    assert [Policy(staging=3).staging_slots(slots, 100) for slots in (8, 24, 99)] == [1, 3, 3]
    assert Policy().staging_slots(100, 100) == 0  # every expert has a slot
    assert Policy(staging=0).staging_slots(50, 100) == 0


def test_with_a_slot_for_every_expert_each_is_read_once() -> None:
    simulation = SlotSimulation((40,), 40, Policy(), 1)
    uses = np.ones(40, np.uint32)
    assert [simulation.replay([uses]) for _ in range(2)] == [Misses(0, 40), Misses(0, 0)]


def test_experts_of_the_first_use_are_told_apart() -> None:
    simulation = SlotSimulation((4,), 1, Policy(), 1)
    one, two = np.array([1, 0, 0, 0]), np.array([0, 1, 0, 0])
    assert [simulation.replay([uses]) for uses in (one, one, two, one)] == [
        Misses(0, 1),
        Misses(0, 0),
        Misses(0, 1),
        Misses(1, 0),
    ]


def test_reads_fall_with_more_memory() -> None:
    files = [RecordFile(Path("x"), count, stride) for count, stride in zip(EXPERTS, (STRIDE, 2 * STRIDE))]
    replays = [
        [np.bincount(ids, minlength=count) for ids, count in zip(token, EXPERTS)] for token in choices(1, 90)
    ]
    reads = simulated_reads(files, replays, 10, Policy(), TOP_K)
    assert [share for share, _ in reads] == [*SHARES, 1.0]
    nbytes = [nbytes for _, nbytes in reads]
    assert nbytes[0] == pytest.approx(TOP_K * 3 * STRIDE, rel=0.1)  # a slot of each size: nearly all is read
    assert nbytes == sorted(nbytes, reverse=True)
    assert nbytes[-1] == 0
