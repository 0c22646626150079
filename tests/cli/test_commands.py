"""The command line as a user types it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import pytest

import pyturbo
from pyturbo.cli import main

#: Soft Metal is known to this process, but not to those that it starts.
HAS_SOFT_METAL = importlib.util.find_spec("pyturbo._soft_metal_tests") is not None


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """In an empty folder, so that the installed package is used and not the sources around us."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pyturbo", *args]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_devices(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTURBO_THREADS", raising=False)
    done = run("devices")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    of_tests = {"metal"} if HAS_SOFT_METAL else set()
    expected = [name for name in pyturbo.devices() if name not in of_tests]
    assert listed == ["device", *expected]
    assert main(["devices", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == pyturbo.devices()
    assert shown["cpu"]["threads"] == str(os.cpu_count())
    if HAS_SOFT_METAL:
        assert shown["metal"]["family"] == "Apple8"


def test_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "rms_norm_f32", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)
    assert "rms_norm_f32" in kernels
    assert all("rms_norm_f32" in name for name in kernels)
    assert main(["kernels", "rms_norm_f32"]) == 0
    assert "weight" in capsys.readouterr().out


def test_failures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "no_such_kernel"]) == 1
    assert capsys.readouterr().err == (
        "pyturbo: name: expected a part of a kernel's name, got no_such_kernel\n"
    )


def test_a_process_ends_after_wrong_usage() -> None:
    done = run("--frobnicate")
    assert done.returncode == 2
    assert "usage: pyturbo" in done.stderr


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (
        (),
        ("bench", "model", "--lengths", "none"),
        ("bench",),
        ("bench", "some/model"),
        ("convert", "a", "b", "--bits", "7"),
        ("info", ""),
        ("generate", "x", "--model", ""),
    ):
        with pytest.raises(SystemExit, match="2"):
            raise SystemExit(main([*args]))
        assert "usage: pyturbo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate x --temprature 1", "`pyturbo generate` has no such option; did you mean --temperature?"),
        ("chat model --contxt=64", "`pyturbo chat` has no such option; did you mean --context?"),
        ("info model extra", "unexpected argument: 'extra'"),
        ("generate model extra", "unexpected argument: 'extra'; a model is named with --model"),
        ("devices --frobnicate", "--frobnicate: `pyturbo devices` has no such option"),
        ("convert a b --bits 4 --no", "--no: `pyturbo convert` has no such option"),
        ("generate x --max-tokens many", "argument --max-tokens: invalid int value: 'many'"),
    ],
)
def test_a_typo_in_an_option(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    shown = capsys.readouterr().err
    assert shown.startswith(f"usage: pyturbo {words.split()[0]} ")
    assert shown.endswith(f"{message}\n")


def test_version() -> None:
    assert run("--version").stdout.strip() == f"pyturbo {pyturbo.__version__}"


def test_bench_launch() -> None:
    """The figures are there and possible; what they should be, the benchmark shows and no test asserts."""
    timings = json.loads(run("bench", "launch", "--json").stdout)
    assert [timing["goal"] for timing in timings] == [3000, 60]
    assert all(0 < timing["nanoseconds"] < 1e6 for timing in timings)


def test_bench_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--json"]) == 0
    assert all(timing["nanoseconds"] > 0 for timing in json.loads(capsys.readouterr().out))
