"""Standard streams that are closed, full or not read; interrupts and a lack of memory at any time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyturbo.cli import main
from text.tiny_chat import write_model

#: Buffered, as Python is unless told otherwise.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def in_shell(words: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a line of bash; `pyturbo` in it is the command."""
    return subprocess.run(
        ["bash", "-c", f'pyturbo() {{ "{sys.executable}" -m pyturbo "$@"; }}; {words}'],
        cwd=folder,
        env=ENVIRONMENT,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", ["generate hi --raw --stats --max-tokens 3", "chat --stats --max-tokens 3"])
def test_a_closed_standard_error(words: str, tmp_path: Path) -> None:
    """Notes are lost; nothing of them is on standard output."""
    model = write_model(tmp_path / "model", layers=2)
    open_ = in_shell(f"pyturbo {words} --model {model}", tmp_path, "hi")
    closed = in_shell(f"pyturbo {words} --model {model} 2>&-", tmp_path, "hi")
    assert "written at" in open_.stderr
    assert (closed.returncode, closed.stdout) == (0, open_.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["devices", "devices --json", "kernels", "info", "--help"])
def test_output_that_nobody_reads(words: str, tmp_path: Path) -> None:
    """The pipe is closed before anything is written to it."""
    script = f"(sleep 0.2; pyturbo {words}; echo status $? >&2) | exec true"
    assert in_shell(script, tmp_path).stderr == "status 0\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", ["--version", "--help", "devices", "devices --json"])
def test_output_that_cannot_be_written(words: str, tmp_path: Path) -> None:
    done = in_shell(f"pyturbo {words} >/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, "pyturbo: [Errno 28] No space left on device\n")


def test_an_interrupt_while_a_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["devices"]) == 130
    assert capsys.readouterr().err == ""


def test_a_library_that_cannot_be_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where there is no memory to map it."""

    def unloadable(name: str) -> None:
        raise ImportError("some.so: failed to map segment")

    monkeypatch.setattr("importlib.import_module", unloadable)
    assert main(["devices"]) == 1
    message = (
        "pyturbo: a package that this command needs cannot be imported: some.so: failed to map segment\n"
    )
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("", "there is not enough memory"),
        ("Unable to allocate 9 GiB", "there is not enough memory: Unable to allocate 9 GiB"),
    ],
)
def test_a_lack_of_memory_is_one_line(
    said: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def greedy() -> None:
        raise MemoryError(said)

    monkeypatch.setattr("pyturbo.devices", greedy)
    assert main(["devices"]) == 1
    assert capsys.readouterr().err == f"pyturbo: {message}\n"
    with pytest.raises(MemoryError):
        main(["devices", "--debug"])
