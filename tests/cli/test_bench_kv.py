"""``pyturbo bench kv``: figures are there and possible. What quality should be, test_kv_quality.py says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.bench_kv import plot, timing
from pyturbo.bench_kv.quality import Quality, Tally, bytes_per_token
from pyturbo.cli import _kv, main
from pyturbo.cli._output import print_table
from pyturbo.errors import ArgumentError
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf

SETTINGS = ["f32", "f16", "turbo8", "turbo8v4", "turbo4", "turbo4v2"]


def test_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kv, "WINDOW", 24)
    folder, text = str(write_model(tmp_path / "model")), tmp_path / "text.md"
    text.write_text("A story of a fox who went out to look for a friend. " * 9)
    command = ["bench", "kv", folder, "--text", str(text), "--windows", "2"]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kv"] for row in rows] == SETTINGS
    assert {row["tokens"] for row in rows} == {2 * 23}
    # 2 layers of 2 heads of 64 values
    assert [row["bytes_per_token"] for row in rows] == [
        2048,
        1024,
        8 * (64 + 4),
        4 * (64 + 4) + 4 * (32 + 4),
        8 * (32 + 4),
        4 * (32 + 4) + 4 * (16 + 4),
    ]
    losses = [row["divergence"] for row in rows]
    assert losses[0] == 0 < losses[2] < losses[4] < losses[5]
    assert main([*command[:-1], "1"]) == 0
    shown = capsys.readouterr().out
    assert "turbo4v2" in shown
    assert "23 tokens predicted" in shown
    for wrong, status, message in (
        (["--text", str(tmp_path / "absent")], 1, "text: cannot be read"),
        (["--text", str(text), "--windows", "0"], 2, "--windows: expected an integer from 1 on, got 0"),
        (["--plot", "a.png"], 2, "--plot: expected --text"),
        (["--model", folder], 2, f"expected one model, got {folder} and --model {folder}"),
    ):
        assert main(["bench", "kv", folder, *wrong]) == status
        assert message in capsys.readouterr().err
    text.write_text("Too short.")
    assert main(command) == 1
    assert "windows: expected at least one of 2 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(("kv", "row"), [("f16", 2 * (128 + 16)), ("turbo4", 64 + 4 + 2 * 16)])
def test_bytes_of_latents(tmp_path: Path, kv: str, row: int) -> None:
    model = pyturbo.load(write_hf(MODELS["deepseek_v3"], tmp_path / "model"), "cpu", kv=kv)
    config = MODELS["deepseek_v3"].config
    assert (config["kv_lora_rank"], config["qk_rope_head_dim"]) == (128, 16)
    assert bytes_per_token(model) == config["num_hidden_layers"] * row


def test_a_tally_by_hand() -> None:
    tally = Tally()
    want, got = np.log([0.5, 0.25, 0.25]), np.log([0.25, 0.5, 0.25])
    tally.add(want, want, 0)
    tally.add(want, got, 0)
    assert tally.same == 1
    assert tally.perplexity == pytest.approx(8**0.5)  # of 1/2 and 1/4
    assert tally.divergence == pytest.approx(0.25 * np.log(2))


def test_timing(capsys: pytest.CaptureFixture[str]) -> None:
    timings = timing.measure(pyturbo.Device("cpu"), SETTINGS, contexts=(40,), repeats=1)
    assert [row.kv for row in timings] == SETTINGS * 2
    assert min(row.microseconds for row in timings) > 0
    print_table(_kv.timing_table(timings))
    assert "16 heads, 2 for keys, dim 256" in capsys.readouterr().out


def test_plot(tmp_path: Path) -> None:
    rows = [Quality("f32", 100, 9, 7.0, 0.0, 0.0, 1.0), Quality("turbo4", 20, 9, 7.1, 0.01, 0.02, 0.9)]
    with pytest.raises(
        ArgumentError, match="plot: expected a name that ends in .png or .svg, got .*plot.pdf"
    ):
        plot.draw(rows, tmp_path / "plot.pdf")
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(ArgumentError, match="expected matplotlib; pip install"):
            plot.draw(rows, tmp_path / "plot.svg")
        return
    plot.draw(rows, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text(encoding="utf-8")
