"""``pyturbo bench peers --only q4_k_m`` with a small model and a peer that is a script."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pyturbo.bench.peers import child, contender, q4_k_m, random_qwen2
from pyturbo.bench.peers.plan import LLAMA, Plan
from pyturbo.bench.peers.random_blocks import random_rows
from pyturbo.bench.peers.rows import Report
from pyturbo.bench.peers.run_pyturbo import load
from pyturbo.checkpoint import open_checkpoint
from pyturbo.cli.bench.peers import table
from reference import gguf as reference

#: Rows of whole blocks; 9 layers have all three reasons for more bits.
SMALL = random_qwen2.Shape(256, 9, 4, 2, 64, 512, 1000, 700, 256)

#: Answers as child.py does: loads in 2 seconds, takes 300 MB, and reads a token a millisecond.
FAKE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    loads = {"facts": {}, "load": {"seconds": 2.0, "resident": 300.0, "peak": 400.0, "beside weights": 0.0}}
    print(json.dumps(loads if request["do"] == "load" else {"seconds": request["tokens"] / 1000}))
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("q4_k_m") / "model.gguf"
    random_qwen2.write(path, SMALL)
    return path


def test_types_are_those_of_llama_cpp(path: Path) -> None:
    assert [i for i in range(28) if random_qwen2.more_bits(i, 28)] == [
        0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27
    ]  # fmt: skip
    with open_checkpoint(path) as checkpoint:
        kinds = {name: info.dtype for name, info in checkpoint.items()}
    assert kinds["token_embd.weight"] == "Q6_K"
    assert "output.weight" not in kinds
    for i in range(SMALL.layers):
        upper = "Q6_K" if i in (0, 3, 6, 7, 8) else "Q4_K"
        assert kinds[f"blk.{i}.attn_v.weight"] == kinds[f"blk.{i}.ffn_down.weight"] == upper
        assert {kinds[f"blk.{i}.{name}.weight"] for name in ("attn_q", "attn_k", "ffn_up")} == {"Q4_K"}
        assert kinds[f"blk.{i}.attn_q.bias"] == "F32"


def test_the_model_runs(path: Path) -> None:
    runner = load(str(path), threads=1, room=16, precision="default")
    logits = runner._model.logits([5, 7, 300])
    assert np.isfinite(logits).all()
    assert logits.std(axis=1).min() > 0.1
    ids = runner._model.tokenizer.encode("some text")
    assert runner._model.tokenizer.decode(ids) == "some text"
    assert runner.load_seconds > 0
    assert runner.beside_weights > 2 * 9 * 2 * 64 * 16 * 2
    found = child.loaded(runner)
    assert 10 < found["resident"] <= found["peak"]


@pytest.mark.parametrize("kind", sorted(reference.SIZES))
def test_random_blocks_have_the_size_asked_for(kind: str) -> None:
    rng = np.random.default_rng(3)
    values = reference.dequantize(reference.Weight(random_rows(rng, kind, 200, 512, 0.02), kind))
    factor = 2**0.5 if kind == "MXFP4" else 1.05  # the former has powers of two as scales
    assert 0.02 / factor < values.std() < 0.02 * factor
    assert abs(values.mean()) < 0.003


@pytest.mark.slow
def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = contender.command
    fake = [sys.executable, "-c", FAKE]
    monkeypatch.setattr(contender, "command", lambda kind: ours(kind) if kind == "pyturbo" else fake)
    report, told = Report(), []
    plan = Plan(threads=(1,), rounds=2, tokens=2, context=3, prompt=4)
    q4_k_m.q4_k_m(plan, report, told.append, SMALL)
    assert [(row.work.split()[0], row.precision, row.unit, row.at_most) for row in report.rows] == [
        ("load", "default", "s", True),
        ("load", "fast", "s", True),
        ("resident", "default", "MB", True),
        ("resident", "fast", "MB", True),
        ("decode", "default", "tok/s", False),
        ("decode", "fast", "tok/s", False),
        ("prefill", "default", "tok/s", False),
        ("prefill", "fast", "tok/s", False),
    ]
    load_row, _, resident, *_ = report.rows
    assert (load_row.peer, load_row.peer_figure, load_row.goal) == (LLAMA, 2.0, 1.5)
    assert load_row.met is (load_row.figure <= 1.5)
    assert 0 < load_row.ratio <= 2.0 / load_row.figure * (1 + 1e-6)
    assert resident.goal > q4_k_m.SPARE
    assert "loading llama.cpp, round 2" in told
    cells = [list(column.cells) for column in table(report).columns]
    assert cells[3][0] == f"{load_row.figure:.2f} s"
    assert cells[7][0] == "<= 1.50 s"
    assert cells[7][4] == ">= 1.4x"
