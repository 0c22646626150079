"""``pyturbo bench MODEL``. The figures are there and possible; what they should be, no test asserts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyturbo.cli import main
from text.tiny_chat import write_model


def test_bench_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_model(tmp_path / "model"))
    assert main(["bench", folder, "--lengths", "2,5", "--tokens", "2", "--json"]) == 0
    times = json.loads(capsys.readouterr().out)
    assert list(times["prefill"]) == ["2", "5"]
    assert min(times["prefill"].values()) > 0 < times["decode"]
    assert list(times["kinds"]) == ["embedding", "delta net", "mlp or experts", "attention", "output head"]
    expected = times["bytes_per_token"] * times["decode"] / times["bandwidth"]
    assert times["bandwidth_share"] == pytest.approx(expected)
    assert main(["info", folder, "--json"]) == 0
    parts = {name: part["nbytes"] for name, part in json.loads(capsys.readouterr().out)["parts"].items()}
    skipped = parts["embedding"] + parts["experts"] / 2  # three of six are chosen
    assert times["bytes_per_token"] == sum(parts.values()) - skipped
    assert main(["bench", folder, "--lengths", "3", "--tokens", "1"]) == 0
    shown = capsys.readouterr().out
    for text in ("load", "read 3 tokens", "write", "of a token: delta net", "share of it reached"):
        assert text in shown
    assert main(["bench", folder, "--lengths", "600"]) == 1
    assert "at most 512 tokens in all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("context", "words", "lengths"),
    [
        (512, [], ["32", "128", "480"]),
        (40, [], ["20"]),
        (100, ["--tokens", "3"], ["32", "97"]),
        (100, ["--lengths", "98"], ["98"]),
    ],
)
def test_defaults_are_what_fits(
    context: int, words: list[str], lengths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_model(tmp_path / "model", layers=2, context=context)
    assert main(["bench", str(folder), "--json", *words]) == 0
    assert list(json.loads(capsys.readouterr().out)["prefill"]) == lengths
