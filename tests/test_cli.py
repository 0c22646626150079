"""The command line as a user types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import pyturbo
from pyturbo.cli import main
from text.tiny_chat import write_model


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """In an empty folder, so that the installed package is used and not the sources around us."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pyturbo", *args]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    done = run("devices")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()][:3] == ["device", "cpu", "cpu:reference"]
    assert main(["devices", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == pyturbo.devices()
    assert shown["cpu"]["threads"] == str(os.cpu_count())
    if "metal" in shown:
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
        "pyturbo: expected part of a kernel's name, got no_such_kernel; see pyturbo kernels\n"
    )


def test_wrong_usage() -> None:
    for args in ((), ("bench", "nothing"), ("--frobnicate",)):
        done = run(*args)
        assert done.returncode == 2
        assert "usage: pyturbo" in done.stderr


def test_version() -> None:
    assert run("--version").stdout.strip() == f"pyturbo {pyturbo.__version__}"


def test_bench_launch() -> None:
    """The figures are there and possible; what they should be, the benchmark shows and no test asserts."""
    timings = json.loads(run("bench", "launch", "--json").stdout)
    assert [timing["goal"] for timing in timings] == [3000, 60]
    assert all(0 < timing["nanoseconds"] < 1e6 for timing in timings)


def test_generate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_model(tmp_path / "model"))
    model = pyturbo.load(folder)
    assert (
        main(["generate", "Hello", "--raw", "--model", folder, "--max-tokens", "6", "--stats", "--profile"])
        == 0
    )
    shown = capsys.readouterr()
    assert shown.out == model.generate("Hello", max_tokens=6).text + "\n"
    assert "6 written at" in shown.err
    assert "delta_net_k64" in shown.err
    options = ["--temperature", "0.9", "--seed", "4", "--max-tokens", "6", "--system", "Be brief.", "--json"]
    assert main(["generate", "Hello", "--model", folder, *options]) == 0
    reply = json.loads(capsys.readouterr().out)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert reply["tokens"] == model.generate(messages, 6, temperature=0.9, seed=4).tokens
    assert reply["finish_reason"] == "length"
    assert reply["stats"]["tokens"] == 6
    for arguments, message in (
        (["x", "--model", str(tmp_path / "absent")], "absent: no such file or directory"),
        (["x", "--model", folder, "--top-p", "7"], "top_p: expected"),
        (["x", "--model", folder, "--kv", "f8"], "kv: expected one of f32, f16, got 'f8'"),
        (["x", "--model", folder, "--raw", "--system", "y"], "--system: expected a chat"),
    ):
        assert main(["generate", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_generate_reads_standard_input(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    command = [
        sys.executable,
        "-m",
        "pyturbo",
        "generate",
        "--model",
        str(folder),
        "--raw",
        "--max-tokens",
        "3",
    ]
    done = subprocess.run(command, cwd=tmp_path, input="Hello", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == pyturbo.load(folder).generate("Hello", max_tokens=3).text + "\n"


def test_an_interrupt_ends_generate(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    command = [sys.executable, "-m", "pyturbo", "generate", "Hello", "--model", str(folder), "--raw"]
    with subprocess.Popen(
        [*command, "--max-tokens", "500"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have had it ignored
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = process.stdout.read(1)  # it writes
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == b""
    assert (shown + rest).endswith(b"\n")
    assert len(rest) < 1000


def test_bench_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--json"]) == 0
    assert all(timing["nanoseconds"] > 0 for timing in json.loads(capsys.readouterr().out))
