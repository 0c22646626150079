"""``pyturbo bench gpu`` at small sizes. No test can tell whether figures are those of a GPU."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from pyturbo import Device, ops
from pyturbo.bench.gpu import kernels, model
from pyturbo.bench.gpu.cases import QUICK, Case, Goal, Sizes
from pyturbo.bench.gpu.kernels import READ, KernelRow, all_cases
from pyturbo.bench.gpu.memory import Operands, Pool
from pyturbo.bench.gpu.random_model import RandomWeights, random_runner
from pyturbo.bench.gpu.timing import Effort, recorded, timed
from pyturbo.bench.gpu.torch_peer import torch_peer
from pyturbo.bench.launches import replays
from pyturbo.cli import main
from pyturbo.engine.session import at_position
from pyturbo.errors import ArgumentError

DEVICES = [name for name in ("cpu", "cuda", "metal") if name in pyturbo.devices()]
SHAPE = model.QUICK.shape


def quiet(text: str) -> None:
    pass


def open_device(name: str) -> Device:
    return Device(name, threads=2, check=False)


# Kernels ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_case_runs_on_every_device(device: Device) -> None:
    rows = kernels.measure(device, True, None, quiet)
    assert [row.case for row in rows] == [READ, *(case.name for case in all_cases(QUICK))]
    assert {row.error for row in rows} == {""}
    assert all(row.us is not None and row.us > 0 and row.launches > 0 for row in rows)
    figures = {row.case: row for row in rows}
    first = figures["matvec 4 bits, 64 x 512"]
    assert first.gigabytes == pytest.approx((64 * 256 + 2 * 64 * 8 * 2) / first.us / 1e3)
    assert first.read_share == pytest.approx(first.gigabytes / figures[READ].gigabytes)
    product = figures["matmul 4 bits, 40 tokens, 64 x 256"]
    assert product.teraflops == pytest.approx(2 * 40 * 64 * 256 / product.us / 1e6)


def test_cases_have_names_of_their_own() -> None:
    for sizes in (QUICK, Sizes()):
        names = [case.name for case in all_cases(sizes)]
        assert len(set(names)) == len(names)
        liked = {case.goal.like for case in all_cases(sizes) if case.goal is not None and case.goal.like}
        assert liked <= set(names)


def test_a_case_that_fails_has_the_reason_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(operands: Operands) -> None:
        raise ArgumentError("no such kernel")

    def works(operands: Operands) -> object:
        return ops.argmax(operands.take((1, 64)))

    monkeypatch.setattr(kernels, "all_cases", lambda sizes: [Case("one", fails), Case("two", works)])
    with open_device("cpu") as device:
        _, one, two = kernels.measure(device, True, None, quiet)
    assert one == KernelRow("one", error="no such kernel")
    assert two.error == ""
    assert two.us is not None


@pytest.mark.parametrize("name", DEVICES)
def test_calls_wait_for_each_other_and_read_other_memory(name: str) -> None:
    def call(operands: Operands) -> None:
        taken.append(operands.take((1, 64)))
        ops.argmax(taken[-1])

    taken: list[pyturbo.Tensor] = []
    with open_device(name) as device:
        operands = Operands(device, Pool(device, 1 << 16))
        program = recorded(device, call, operands, 3)
        assert [launch.waits for launch in program.listing()] == [False, True, True]
        assert operands.nbytes == 256
        for tensor, offset in zip(taken, (0, 256, 512)):
            whole = Pool(device, 1 << 16).take((1 << 14,), np.float32).memory.read()
            part = tensor.memory.read()[0]
            np.testing.assert_array_equal(part, whole[offset // 4 : offset // 4 + 64])
        found = timed(device, call, operands, Effort(1e-5, 4, 1))
        assert found.seconds > 0
        assert (found.nbytes, found.launches) == (256, 1)


def test_memory_begins_again_at_its_end_and_holds_finite_numbers() -> None:
    with open_device("cpu") as device:
        pool = Pool(device, 1000)
        parts = [pool.take((100,), np.float32).memory.numpy() for _ in range(3)]
        assert parts[0].ctypes.data == parts[2].ctypes.data != parts[1].ctypes.data
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
            values = Pool(device, 4096).take((1024,), dtype).memory.numpy().astype(np.float64)
            assert np.isfinite(values).all()
            assert len(np.unique(values)) > 50
        with pytest.raises(pyturbo.errors.AllocationError, match="at most 1000 bytes, got 1004"):
            pool.take((251,), np.float32)


def test_goals() -> None:
    def goal_us(goal: Goal, peer: float | None = None) -> float | None:
        with open_device("cpu") as device:
            return kernels._goal_us(goal, found, device, rows, peer)

    found = kernels.Timed(seconds=2e-6, nbytes=1_000_000, launches=1)
    rows = {READ: KernelRow(READ, 1.0, 1000.0), "a": KernelRow("a", 1.0, 500.0)}
    assert goal_us(Goal(read=0.5)) == pytest.approx(2.0)
    assert goal_us(Goal(like="a")) == pytest.approx(2.5)
    assert goal_us(Goal(like="missing")) is None
    assert goal_us(Goal(torch=True), peer=3.0) == 3.0
    assert goal_us(Goal(us=7.0)) is None  # for another device
    assert KernelRow("b", us=2.0, goal_us=2.5).met is True
    assert KernelRow("b", us=2.0, goal_us=1.5).met is False
    assert KernelRow("b", us=2.0).met is None


def test_torch_is_left_out_where_it_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = tmp_path / "torch.py"
    torch.write_text("")  # has no functions
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    peer, reason = torch_peer()
    assert peer is None
    assert reason.startswith("not used: AttributeError: ")
    torch.write_text(
        "__version__, bfloat16 = '9', None\n"
        "class Full(Exception): pass\n"  # can be read only where torch is imported
        "def zeros(*args, **named): pass\n"
        "def randn(*args, **named): raise Full('no memory')\n"
    )
    peer, version = torch_peer()
    assert version == "9"
    assert peer is not None
    with closing(peer):
        us, reason = kernels._peer_us(
            Case("one", lambda operands: None, peer=lambda torch: torch.matmul(1, 2, 3)), peer
        )
    assert us is None
    assert reason == "Full: no memory"
    assert "torch" not in sys.modules


# Replays ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEVICES)
def test_replays(name: str) -> None:
    with open_device(name) as device:
        rows = replays(device, 20)
    assert [row.what for row in rows] == [
        "dependent",
        "independent",
        "dependent, each with a value that changes",
    ]
    assert all(row.us > 0 and 0 < row.host_us <= 20 * row.us for row in rows)


# The model ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_steps_of_the_model(name: str) -> None:
    with open_device(name) as device:
        report = model.measure(device, model.QUICK, quiet)
    assert [row.work for row in report.rows] == [
        "decode at 64 tokens",
        "decode at 300 tokens",
        "decode at 64 tokens, 3 at once",
        "prompt of 20 tokens",
    ]
    for row in report.rows:
        assert row.error == ""
        assert row.speed is not None
        assert row.speed > 0
        assert row.launches > row.waits > 0
        assert 0 < len(row.kernels) <= 12 or "at once" in row.work
    for row in report.rows[:3]:
        assert row.step_us is not None
        assert row.host_us is not None
        assert row.host_us_90 is not None
        assert row.ahead_us is not None
        assert 0 < row.host_us <= row.host_us_90
        assert row.host_us <= row.step_us
        assert 0 < row.ahead_us <= row.step_us


@pytest.mark.parametrize("name", DEVICES)
def test_layers_have_equal_values_in_memory_of_their_own(name: str) -> None:
    with open_device(name) as device, closing(RandomWeights(device, SHAPE, quiet)) as weights:
        one, other = (weights.linear(f"model.layers.{i}.mlp.shared_expert.up_proj", (64, 128)) for i in "01")
        gate = weights.linear("model.layers.0.mlp.gate", (8, 128))
        for array, same in zip(one.arrays, other.arrays):
            assert array.ctypes.data != same.ctypes.data
            np.testing.assert_array_equal(array, same)
        assert (one.bits, gate.bits) == (4, 8)
        assert one.packed.std() > 0
        buffers = [device.constant(layer.packed) for layer in (one, other)]
        read = [buffer.read() for buffer in buffers]
        np.testing.assert_array_equal(*read)


def test_a_session_at_a_position_nothing_was_read_for() -> None:
    with open_device("cpu") as device:
        runner = random_runner(device, SHAPE, "f16", quiet)
        session = at_position(runner, 64, 10)
        assert session.position == 10
        assert np.isfinite(session.step(3)).all()
        assert session.position == 11
        runner.close()


def test_a_model_that_does_not_fit_has_the_reason_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(model, "random_runner", fails)
    with open_device("cpu") as device:
        report = model.measure(device, model.QUICK, quiet)
    assert [(row.work, row.error) for row in report.rows] == [("loading", "MemoryError: too large")]


def test_logits_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.Session, "prefill", lambda self, ids: np.array([1.0, np.nan], np.float32))
    plan = replace(model.QUICK, contexts=(), at_once=())
    with open_device("cpu") as device:
        (row,) = model.measure(device, plan, quiet).rows
    assert row.error == "logits: expected finite values"


# The command --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEVICES)
def test_the_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.txt"
    words = f"bench gpu --device {name} --threads 2 --quick --layers 1 --experts 3 --only replay,model"
    assert main([*words.split(), "--json", "--report", str(file)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kernels"], shown["errors"]) == ([], {})
    assert shown["facts"]["device"] == name
    assert "1 layers, 3 experts" in shown["model"]["model"]
    assert [row["error"] for row in shown["model"]["rows"]] == [""] * 4
    assert list(shown["seconds"]) == ["replay", "model"]
    text = file.read_text()
    assert text.startswith(f"pyturbo bench gpu\ndate: {shown['facts']['date']}\n")
    assert "decode at 300 tokens" in text
    assert json.loads(text.splitlines()[-1]) == shown


@pytest.mark.slow
def test_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpu", "--device", "cpu", "--quick"]) == 0
    shown = capsys.readouterr()
    for text in (
        READ,
        "argmax of 2048 logits",
        "us a launch",
        "tok/s",
        "launches timed one by one",
        "took: ",
    ):
        assert text in shown.out
    assert "kernel 1 of " in shown.err


def test_a_part_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*arguments: object) -> None:
        raise pyturbo.errors.DeviceError("lost")

    monkeypatch.setattr(kernels, "measure", fails)
    words = ["bench", "gpu", "--device", "cpu", "--quick", "--only", "kernels,replay"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "lost" in shown
    assert "us a launch" in shown


def test_only_a_report_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    words = ["bench", "gpu", "--device", "cpu", "--quick", "--only", "replay", "--report"]
    assert main([*words, str(file)]) != 0
    assert "notes.txt" in capsys.readouterr().err
    assert file.read_text() == "mine"
    for _ in range(2):
        assert main([*words, str(tmp_path / "report.txt")]) == 0


def test_replays_of_any_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--device", "cpu", "--json"]) == 0
    timings = json.loads(capsys.readouterr().out)
    assert [timing["goal"] for timing in timings] == [None, None, None]
    assert all(timing["nanoseconds"] > 0 for timing in timings)
    assert main(["bench", "replay", "--device", "gpu"]) == 2
    assert "--device: expected" in capsys.readouterr().err


def test_wrong_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "gpu", "--only", "kernels,typing"])
    assert "expected some of kernels, replay, model, got 'typing'" in capsys.readouterr().err
    assert main(["bench", "gpu", "--layers", "0"]) == 2
    assert "--layers: expected an integer from 1 on, got 0" in capsys.readouterr().err
    assert main(["bench", "gpu", "--kv", "q3"]) == 2
    assert "--kv" in capsys.readouterr().err
