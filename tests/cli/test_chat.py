"""``pyturbo chat`` through pipes, and on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyturbo
from pyturbo.cli import main
from pyturbo.cli._output import size
from pyturbo.conversation import Conversation
from text.tiny_chat import write_model

#: On the slowest device, so that there is time to interrupt a reply.
COMMAND = [sys.executable, "-m", "pyturbo", "chat", "--device", "cpu:reference"]
PATIENCE = 60.0

#: What the editor tells the terminal when it begins to edit a line, and when it has one.
EDITING, RUNNING = "\x1b[?2004h", "\x1b[?2004l"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("chat") / "model", layers=2)


def through_pipes(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(folder), "--max-tokens", "4", *options]
    environment = os.environ | {"HOME": str(folder.parent)}
    return subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )


@pytest.mark.slow
def test_turns_through_pipes(folder: Path) -> None:
    kept = folder.parent / "chat.session"
    lines = "Hello||Why?|/save ~/chat.session|Oh.|/load ~/chat.session|Oh.|/reset|Hello|/exit|not read|"
    text = lines.replace("|", "\n")
    done = through_pipes(folder, text, "--json", "--system", "Be brief.")
    assert done.returncode == 0
    assert kept.is_file()
    tokens = re.search(r"5 messages, (\d+) of 512 tokens", done.stderr)
    assert tokens is not None
    assert done.stderr == (
        f"saved {kept}: {tokens[0]}, {size(kept.stat().st_size)}\n"
        f"loaded {kept}: {tokens[0]}\n"
        "the conversation starts again, with the system message\n"
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    conversation = Conversation(pyturbo.load(folder), system="Be brief.")
    said = []
    for line in ("Hello", "Why?", "Oh."):
        said.append([chunk.token for chunk in conversation.reply(line, max_tokens=4)])
    assert [reply["tokens"] for reply in replies] == [*said, said[2], said[0]]
    loaded = through_pipes(folder, "Oh.\n/reset\n", "--json", "--load", "~/chat.session", "--context", "300")
    assert json.loads(loaded.stdout)["tokens"] == said[2]
    extent = tokens[0].replace("512", "300")
    assert loaded.stderr == (
        f"loaded {kept}: {extent}\nthe conversation starts again, with the system message\n"
    )


@pytest.mark.slow
def test_text_and_commands_through_pipes(folder: Path) -> None:
    done = through_pipes(folder, "Hello\n/stats\n/help\n")
    reply = "".join(chunk.text for chunk in Conversation(pyturbo.load(folder)).reply("Hello", max_tokens=4))
    assert (done.returncode, done.stdout) == (0, reply + "\n")
    assert done.stderr.startswith("[cut at 4 tokens; --max-tokens N allows more]\n")
    assert "4 written at" in done.stderr
    assert "tokens in use" in done.stderr
    assert "/load PATH" in done.stderr
    done = through_pipes(folder, "/frob\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected one of /save" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/frob\n", "expected one of /save, /load, /reset, /stats, /help, /exit, got /frob"),
        ("/save\n", "/save: expected a path"),
        ("/exit now\n", "/exit: expected no argument, got now"),
        ("/help me\n", "/help: expected no argument, got me"),
        ("/reset all\n", "/reset: expected no argument, got all"),
        ("/load nothing\n", "nothing: cannot be opened: No such file or directory"),
        ("word " * 600, "chat: expected at most 512 tokens, the context, got"),
    ],
    ids=lambda value: value.split()[0],
)
def test_wrong_lines_are_refused_in_one_line(
    text: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["chat", str(folder), "--max-tokens", "4"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.slow
def test_lines_that_are_no_text_are_refused(folder: Path) -> None:
    """As `generate` refuses them; the lines before them have their replies."""
    command = [*COMMAND, str(folder), "--max-tokens", "2"]
    done = subprocess.run(
        command, cwd=folder, input=b"Hello\r\nabc \xff\n", capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert done.stdout.count(b"\n") == 1
    message = b"pyturbo: standard input: expected text in UTF-8, got other bytes: 'utf-8' codec can't decode"
    assert done.stderr.splitlines()[-1].startswith(message)


@pytest.mark.slow
def test_a_full_context_is_named(folder: Path) -> None:
    done = through_pipes(folder, "Hello\n", "--context", "40", "--max-tokens", "100")
    assert done.stderr == "[the context of 40 tokens is full; --context N allows up to 512]\n"


def test_a_closed_standard_input_has_no_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["chat", str(folder)]) == 0


def test_json_is_written_as_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without escapes, as `generate --json` has it."""
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n"))
    assert main(["chat", str(folder), "--json", "--max-tokens", "40"]) == 0
    shown = capsys.readouterr().out
    assert not json.loads(shown)["text"].isascii()
    assert shown == json.dumps(json.loads(shown), ensure_ascii=False) + "\n"


def test_the_model_is_an_argument_or_an_option(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["chat", str(folder)], ["chat", "--model", str(folder)]):
        monkeypatch.setattr("sys.stdin", io.StringIO("/reset\n"))
        assert main(words) == 0
        assert capsys.readouterr().err == "the conversation starts again\n"
    for words in (["info", str(folder), "--json"], ["info", "--model", str(folder), "--json"]):
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["path"] == str(folder)
    for command in ("chat", "info"):
        assert main([command, "a", "--model", "b"]) == 2
        expected = f"pyturbo: expected one model, got a and --model b; see pyturbo {command} --help\n"
        assert capsys.readouterr().err == expected


def test_without_a_model_it_says_where_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert main(["chat"]) == 2
    shown = capsys.readouterr().err
    assert re.search(r"\n  pyturbo pull (\S+)\n  pyturbo chat \1\n", shown)
    assert "Already in" not in shown
    for name, files in (
        ("a--Model", {"model.gguf": ""}),
        ("b--Model", {"model.safetensors": "", "config.json": '{"model_type": "qwen3"}'}),
        ("c--Ears", {"model.safetensors": "", "config.json": '{"model_type": "whisper"}'}),
    ):
        copy = tmp_path / f"models--{name}" / "snapshots" / "0123456789abcdef"
        copy.mkdir(parents=True)
        for file, text in files.items():
            (copy / file).write_text(text)
    assert main(["chat"]) == 2
    expected = f"Already in {tmp_path}:\n  pyturbo chat a/Model\n  pyturbo chat b/Model\nMODEL may"
    assert expected in capsys.readouterr().err


def test_wrong_usage_is_seen_before_anything_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "chat.session"
    conversation = Conversation(pyturbo.load(folder))
    list(conversation.reply("Hello", max_tokens=2))
    conversation.save(kept)
    tokens = conversation.session.position
    monkeypatch.setattr("pyturbo.cli._model.load", lambda *arguments, **options: pytest.fail("it is loaded"))
    for words, status, message in (
        (["--top-p", "7"], 2, "pyturbo: --top-p: expected a number above 0 and at most 1, got 7"),
        (["--context", "0"], 2, "--context: expected an integer from 1 on, got 0"),
        (["--load", str(kept), "--system", "x"], 2, "--system: cannot be combined with --load"),
        (["--load", str(kept), "--kv", "turbo4"], 2, f"--kv: expected f16, as {kept} was saved, got turbo4"),
        (
            ["--load", str(kept), "--context", "9"],
            2,
            f"expected at least the {tokens} tokens of {kept}, got 9",
        ),
        (["--load", str(tmp_path / "absent")], 1, "absent: cannot be"),
        (["--load", str(folder / "config.json")], 1, "config.json: expected a pyturbo session"),
    ):
        assert main(["chat", str(folder), *words]) == status
        assert message in capsys.readouterr().err


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, command: list[str], home: Path) -> None:
        self._master, slave = pty.openpty()
        environment = os.environ | {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }

        def own_terminal() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            cwd=home,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(slave)
        self.shown = ""

    def send(self, text: str) -> None:
        self.shown = ""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < end, f"expected {text!r}, got {self.shown!r}"
            if select.select([self._master], [], [], 1.0)[0]:
                self.shown += os.read(self._master, 4096).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal([*COMMAND, "--model", str(folder), "--max-tokens", "400"], tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
def test_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("/help lists the commands.")
    terminal.wait_for(EDITING)
    terminal.send("Hello\r")
    terminal.wait_for(RUNNING)
    time.sleep(2.0)  # into the reply, which takes many seconds
    terminal.send("\x03")  # Ctrl-C
    terminal.wait_for(EDITING)
    terminal.send("/stats\r")
    terminal.wait_for("tokens in use")
    written = re.search(r"(\d+) written at", terminal.shown)
    assert written is not None
    assert int(written[1]) < 400
    terminal.wait_for(EDITING)
    terminal.send("/frob\r")
    terminal.wait_for("pyturbo: expected one of /save")
    terminal.wait_for(EDITING)
    terminal.send("\x04")  # Ctrl-D
    assert terminal.process.wait(PATIENCE) == 0
    history = (tmp_path / "data" / "pyturbo" / "chat_history").read_text()
    assert [line for line in history.splitlines() if line.startswith("+")] == ["+Hello", "+/stats", "+/frob"]


@pytest.mark.slow
def test_a_chat_longer_than_its_context_says_what_it_leaves_out(folder: Path) -> None:
    done = through_pipes(folder, "Tell me more.\n" * 5, "--context", "100", "--stats")
    assert done.returncode == 0
    assert re.search(r"MiB peak resident memory; \d+ tokens were read again; \d+ of 100 tokens", done.stderr)
    assert re.search(
        r"\[longer than the context of 100 tokens: the oldest \d+ messages are left out; "
        r"--context N, up to 512, remembers more\]",
        done.stderr,
    )
