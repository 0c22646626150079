"""The arithmetic of expected speeds, on made-up measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pyturbo
from pyturbo.streaming.speed import Measured, ModelSpeed

MODEL = ModelSpeed(
    device="cpu",
    threads=2,
    ahead=False,
    expert_bytes=1000,
    own_bytes=10,
    measured=(
        Measured(400, 10, seconds=0.5, wait_seconds=0.3, read_seconds=0.4, read_bytes=200.0),
        Measured(100, 10, seconds=0.9, wait_seconds=0.6, read_seconds=0.8, read_bytes=600.0),
    ),
    reads=((0.1, 600.0), (0.5, 200.0), (1.0, 0.0)),
)


def test_a_token_that_reads_nothing_only_computes() -> None:
    assert MODEL.compute_seconds == pytest.approx(0.2)
    assert MODEL.seconds(0) == pytest.approx(0.2)
    assert MODEL.tokens_per_second(1.0) == pytest.approx(5)


def test_time_between_measurements_is_linear() -> None:
    assert MODEL.seconds(100) == pytest.approx(0.35)
    assert MODEL.seconds(200) == pytest.approx(0.5)
    assert MODEL.seconds(500) == pytest.approx(0.8)


def test_time_beyond_the_measurements_grows_with_the_bytes() -> None:
    assert MODEL.seconds(1200) == pytest.approx(0.2 + 2 * 0.7)


def test_speed_follows_from_the_share_in_memory() -> None:
    assert MODEL.read_bytes(0.3) == pytest.approx(400)
    assert MODEL.read_bytes(0.01) == pytest.approx(600)
    assert MODEL.tokens_per_second(0.3) == pytest.approx(1 / 0.7)


def test_measurements_in_the_wrong_order_are_averaged() -> None:
    """A moment in which the machine was busy does not make small reads slower than large ones."""
    busy = replace(MODEL, measured=(replace(MODEL.measured[0], seconds=1.1), MODEL.measured[1]))
    assert busy.seconds(200) == busy.seconds(600) == pytest.approx(1.0)
    assert busy.seconds(0) == pytest.approx(0.3)


def test_overlap_is_the_time_of_reads_in_which_something_is_computed() -> None:
    assert MODEL.measured[0].overlap == pytest.approx(0.25)
    assert replace(MODEL.measured[0], read_seconds=0.0, wait_seconds=0.0).overlap == 0
    assert replace(MODEL.measured[0], wait_seconds=0.5).overlap == 0  # waking up takes time too


def test_reads_of_wrong_guesses_are_added() -> None:
    """Here 400 and 600 bytes are expected, with 40 and 10 % in memory, and 200 and 600 were read."""
    model = replace(MODEL, reads=((0.1, 600.0), (0.4, 400.0), (1.0, 0.0))).with_guesses()
    assert model.read_bytes(0.1) == pytest.approx(480)
    assert model.read_bytes(0.4) == pytest.approx(320)


def test_all_was_in_memory() -> None:
    """A probe without reads says nothing about how slow they are."""
    quick = replace(MODEL, measured=(Measured(1000, 10, 0.2, 0.0, 0.0, 0.0),))
    assert quick.seconds(0) == pytest.approx(0.2)
    assert quick.seconds(100) is None
    assert quick.tokens_per_second(0.3) is None
    assert quick.tokens_per_second(1.0) == pytest.approx(5)


def test_it_holds_for_its_device_and_threads() -> None:
    device = pyturbo.Device("cpu", threads=2)
    assert MODEL.is_of(device)
    assert not replace(MODEL, threads=3).is_of(device)
    assert not replace(MODEL, device="metal").is_of(device)


def test_it_is_saved_by_model_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    assert ModelSpeed.of(tmp_path, "a" * 64, 1000) is None
    saved = MODEL.save(tmp_path, "a" * 64)
    assert saved is not None
    assert ModelSpeed.of(tmp_path, "a" * 64, 1000) == MODEL
    assert ModelSpeed.of(tmp_path, "b" * 64, 1000) is None
    assert ModelSpeed.of(tmp_path, "a" * 64, 2000) is None
    content = json.loads(saved.read_text())
    for wrong in ({"version": 0}, {"measured": []}, {"reads": [1]}, {"reads": []}, {"more": 1}, {"ahead": 1}):
        saved.write_text(json.dumps(content | wrong))
        assert ModelSpeed.of(tmp_path, "a" * 64, 1000) is None, wrong
