"""Prompts of `pyturbo generate` from standard input, alone or after an argument. Nothing waits for ever."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyturbo.cli import _stdin, main
from pyturbo.cli._stdin import PromptText
from pyturbo.cli._usage import UsageError
from pyturbo.errors import FormatError

Feed = Callable[[bytes], None]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A pipe as standard input: writes all there is and closes it."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, encoding="utf-8") as stdin, os.fdopen(write_end, "wb") as source:
        monkeypatch.setattr("sys.stdin", stdin)

        def write(data: bytes) -> None:
            source.write(data)
            source.close()

        yield write


def redirect(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> io.TextIOWrapper:
    path.write_text(text, encoding="utf-8")
    file = path.open(encoding="utf-8")
    monkeypatch.setattr("sys.stdin", file)
    return file


def test_piped_text_follows_the_prompt(feed: Feed) -> None:
    feed("Käse\n".encode())
    assert PromptText("Explain this:", wait=False).text() == "Explain this:\n\nKäse\n"


def test_piped_text_is_the_prompt(feed: Feed) -> None:
    feed(b"Once upon a time")
    assert PromptText(None, wait=False).text() == "Once upon a time"


def test_text_that_comes_while_the_model_is_loaded(feed: Feed) -> None:
    prompt = PromptText("Explain:", wait=False)
    feed(b"late")
    assert prompt.text() == "Explain:\n\nlate"


def test_an_open_pipe_without_data_is_left_alone(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read when it is asked for."""
    monkeypatch.setattr(_stdin, "PATIENCE", 0.05)
    assert PromptText("Hello", wait=False).text() == "Hello"
    expected = "standard input had no data and was not read; --stdin waits for it\n"
    assert capsys.readouterr().err == expected
    threading.Timer(0.2, feed, [b"slow"]).start()
    assert PromptText("Hello", wait=True).text() == "Hello\n\nslow"


def test_an_open_socket_without_data_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_stdin, "PATIENCE", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("r", encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert PromptText("Hello", wait=False).text() == "Hello"
    assert "had no data and was not read" in capsys.readouterr().err


def test_a_pipe_that_ended_adds_nothing(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed(b"")
    assert PromptText("Hello", wait=False).text() == "Hello"
    assert capsys.readouterr().err == ""


def test_a_redirected_file_follows_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with redirect(monkeypatch, tmp_path / "text", "a story"):
        assert PromptText("Explain:", wait=False).text() == "Explain:\n\na story"


def test_a_file_that_a_loop_reads_is_left_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with redirect(monkeypatch, tmp_path / "questions", "one\ntwo\n") as file:
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        assert PromptText("one", wait=False).text() == "one"
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 4


def test_what_is_no_text_is_refused(feed: Feed) -> None:
    feed(b"\x89PNG\xff")
    with pytest.raises(FormatError, match="standard input: expected text in UTF-8"):
        PromptText("Explain:", wait=False)


@pytest.mark.parametrize("stdin", [None, io.StringIO("")], ids=["closed", "empty"])
def test_without_any_prompt(stdin: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(UsageError, match="expected a prompt as an argument or on standard input"):
        PromptText(None, wait=False)
    assert PromptText("Hello", wait=False).text() == "Hello"


def test_a_closed_standard_input_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="--stdin: expected an open standard input, got a closed one"):
        PromptText("Hello", wait=True)


def test_a_long_wait_is_explained(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_stdin, "_LONG", 0.05)
    threading.Timer(0.5, feed, [b"done"]).start()
    assert PromptText(None, wait=False).text() == "done"
    assert capsys.readouterr().err == "reading standard input until it ends\n"


def test_a_missing_prompt_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr("pyturbo.cli._model.load", lambda *arguments, **options: pytest.fail("it is loaded"))
    assert main(["generate"]) == 2
    assert "standard input, got empty input; see pyturbo generate --help" in capsys.readouterr().err


def test_the_command_ends_while_its_standard_input_stays_open(tmp_path: Path) -> None:
    """As when a script starts it whose own input is a pipe that nobody writes to."""
    command = [sys.executable, "-m", "pyturbo", "generate", "Once upon a time", "--max-tokens", "2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b", there\n"
        assert b"--stdin waits for it" in process.stderr.read()
