"""``pyturbo bench kv``: figures are there and possible. What quality should be, test_kv_quality.py says."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO
from unittest.mock import Mock

import numpy as np
import pytest

import pyturbo
from pyturbo.bench.kv import plot, quality, timing
from pyturbo.bench.kv.quality import Quality, Tally, bytes_per_token
from pyturbo.cli import main
from pyturbo.cli._output import print_table
from pyturbo.cli.bench.kv import timing_table
from pyturbo.errors import StateError
from pyturbo.layers.kv_cache import KV_FORMATS
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf

SETTINGS = ["f32", "f16", "turbo8", "turbo8v4", "turbo4", "turbo4v2"]


@pytest.mark.slow
def test_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "WINDOW", 24)
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
        (["--windows", "3"], 2, "--windows: expected --text"),
        ([], 2, "MODEL: expected --text"),
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
    timings = timing.measure(pyturbo.Device("cpu"), KV_FORMATS, contexts=(40,), repeats=1)
    assert [row.kv for row in timings] == SETTINGS * 2
    assert min(row.microseconds for row in timings) > 0
    print_table(timing_table(timings))
    assert "16 heads, 2 for keys, dim 256" in capsys.readouterr().out


ROWS = [Quality("f32", 100, 9, 7.0, 0.0, 0.0, 1.0), Quality("turbo4", 20, 9, 7.1, 0.01, 0.02, 0.9)]


def test_a_wrong_place_for_a_plot_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "compare", lambda *arguments: pytest.fail("measured"))
    command = ["bench", "kv", "--text", "absent", "--plot"]
    assert main([*command, str(tmp_path / "plot.pdf")]) == 2
    assert "pyturbo: --plot: expected a name that ends in .png or .svg, got" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        assert main([*command, str(tmp_path / "plot.svg")]) == 1
        assert "--plot needs matplotlib: pip install" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", ModuleType("matplotlib.figure"))
    os.mkfifo(tmp_path / "fifo.svg")
    (tmp_path / "drawing.svg").write_text("<?xml version='1.0'?><svg>a drawing of mine</svg>")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\nmine")
    (tmp_path / "text.svg").write_text("about pyturbo bench kv")
    (tmp_path / "link.png").symlink_to("photo.png")
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    for name, message in (
        ("drawing.svg", "drawing.svg: exists and is not a plot of this command; delete it"),
        ("photo.png", "photo.png: exists and is not a plot of this command"),
        ("link.png", "photo.png: exists and is not a plot of this command"),
        ("text.svg", "text.svg: exists and is not a plot of this command"),
        ("fifo.svg", "fifo.svg: expected a file to write to, got a pipe"),
        ("folder.svg", "folder.svg: expected a file to write to, got a folder"),
        ("absent/plot.svg", "absent: expected a folder to write to, found none"),
    ):
        assert main([*command, str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


class StandInFigure:
    """Draws what matplotlib would, as far as these tests look at it: the metadata in their places."""

    def __init__(self, **options: Any) -> None:
        pass

    def add_subplot(self) -> Mock:
        return Mock()

    def savefig(self, file: BinaryIO, **options: Any) -> None:
        heads = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml version='1.0'?><svg>"}
        file.write(heads[options["format"]] + "".join(filter(None, options["metadata"].values())).encode())


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("matplotlib", ["real", "stand-in"])
def test_plot(tmp_path: Path, ending: str, matplotlib: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if matplotlib == "stand-in":
        module = ModuleType("matplotlib.figure")
        module.Figure = StandInFigure
        monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
        monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    elif importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(StateError, match="--plot needs matplotlib: pip install"):
            plot.draw(ROWS, tmp_path / f"plot.{ending}")
        return
    path = tmp_path / f"plot.{ending}"
    path.touch()
    plot.draw(ROWS, path)
    assert {"svg": b"<svg", "png": b"PNG"}[ending] in path.read_bytes()
    path.write_bytes(path.read_bytes() + b" ")
    before = path.read_bytes()
    plot.draw(ROWS, path)  # its own picture is replaced
    assert path.read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == [path.name]
