"""``pyturbo bench model``. The figures are there and possible; what they should be, no test asserts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyturbo.cli import main
from pyturbo.cli.bench import COMMANDS
from text.tiny_chat import write_model


def test_bench_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_model(tmp_path / "model"))
    assert main(["bench", "model", folder, "--lengths", "2,5", "--tokens", "2", "--json"]) == 0
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
    assert main(["bench", "model", folder, "--lengths", "3", "--tokens", "1"]) == 0
    shown = capsys.readouterr().out
    for text in ("load", "read 3 tokens", "write", "of a token: delta net", "share of it reached"):
        assert text in shown
    assert main(["bench", "model", folder, "--lengths", "600"]) == 1
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
    assert main(["bench", "model", str(folder), "--json", *words]) == 0
    assert list(json.loads(capsys.readouterr().out)["prefill"]) == lengths


def test_a_work_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "peers", "--only", "decode,typing"])
    assert "argument --only: expected some of decode, prefill, " in (told := capsys.readouterr().err)
    assert "got 'typing'" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("peers --rounds 0", "--rounds: expected an integer from 1 on, got 0"),
        ("peers --tokens 0", "--tokens: expected an integer from 1 on, got 0"),
        ("model --tokens 0", "--tokens: expected an integer from 1 on, got 0"),
        ("model a --model b", "expected one model, got a and --model b"),
        ("kv --windows 2", "--windows: expected --text with it; without --text only times are measured"),
        ("kv some/model", "MODEL: expected --text with it; without --text only times are measured"),
    ],
)
def test_wrong_values(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words.split()]) == 2
    command = words.split()[0]
    assert capsys.readouterr().err == f"pyturbo: {message}; see pyturbo bench {command} --help\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("launch file.gguf", "unexpected argument: 'file.gguf'"),
        (
            "launch --model file.gguf",
            "--model is an option of {model} and {kv} and {stream} and {peers}, not of {launch}",
        ),
        (
            "matvec --threads=2",
            "--threads is an option of {model} and {gpu} and {kv} and {stream} and {peers} and {batch} "
            "and {serve}, not of {matvec}",
        ),
        (
            "peers --precision fast",
            "--precision is an option of {model} and {gpu} and {kv} and {stream} and {serve}, not of {peers}",
        ),
        ("kv --kv turbo4", "--kv is an option of {model} and {gpu}, not of {kv}"),
        ("replay --lengths 2", "--lengths is an option of {model}, not of {replay}"),
        ("bandwidth --only decode", "--only is an option of {gpu} and {kv} and {peers}, not of {bandwidth}"),
        ("matvec --text a", "--text is an option of {kv}, not of {matvec}"),
        ("kv --rounds 2", "--rounds is an option of {peers} and {batch} and {serve}, not of {kv}"),
        (
            "model some/model --rounds 2",
            "--rounds is an option of {peers} and {batch} and {serve}, not of {model}",
        ),
        ("model --plot a.svg", "--plot is an option of {kv} and {stream}, not of {model}"),
        ("model --lenghts 2", "--lenghts: {model} has no such option; did you mean --lengths?"),
        ("model --frobnicate", "--frobnicate: {model} has no such option"),
        ("model --threads 1,2", "argument --threads: invalid int value: '1,2'"),
        ("model --lengths 0", "argument --lengths: expected integers from 1 on, as in 1,2,4, got '0'"),
    ],
)
def test_each_measurement_has_options_of_its_own(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *words.split()])
    shown = capsys.readouterr().err
    command = words.split()[0]
    names = {name: f"`pyturbo bench {name}`" for name in COMMANDS}
    assert shown.startswith(f"usage: pyturbo bench {command} ")
    assert shown.endswith(f"pyturbo bench {command}: error: {message.format(**names)}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_measurement_has_help_of_its_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["bench", command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: pyturbo bench {command} ")
