"""``pyturbo chat`` through pipes, and on a terminal."""

from __future__ import annotations

import fcntl
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
    command = [*COMMAND, "--model", str(folder), "--max-tokens", "4", *options]
    return subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_turns_through_pipes(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "chat.session"
    text = f"Hello\n\nWhy?\n/save {kept}\nOh.\n/load {kept}\nOh.\n/reset\nHello\n/exit\nnot read\n"
    done = through_pipes(folder, text, "--json", "--system", "Be brief.")
    assert (done.returncode, done.stderr) == (0, "")
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    conversation = Conversation(pyturbo.load(folder), system="Be brief.")
    said = []
    for line in ("Hello", "Why?", "Oh."):
        said.append([chunk.token for chunk in conversation.reply(line, max_tokens=4)])
    assert [reply["tokens"] for reply in replies] == [*said, said[2], said[0]]
    loaded = through_pipes(folder, "Oh.\n", "--json", "--load", str(kept))
    assert json.loads(loaded.stdout)["tokens"] == said[2]


def test_text_and_commands_through_pipes(folder: Path) -> None:
    done = through_pipes(folder, "Hello\n/stats\n/help\n")
    reply = "".join(chunk.text for chunk in Conversation(pyturbo.load(folder)).reply("Hello", max_tokens=4))
    assert (done.returncode, done.stdout) == (0, reply + "\n")
    assert "4 written at" in done.stderr
    assert "tokens in use" in done.stderr
    assert "/load PATH" in done.stderr
    for text, message in (
        ("/frob\n", "expected one of /save, /load, /reset, /stats, /help, /exit, got /frob"),
        ("/save\n", "/save: expected a path"),
        ("/load nothing\n", "nothing: cannot be opened: No such file or directory"),
        ("word " * 600, "chat: expected at most 512 tokens, the context, got"),
    ):
        done = through_pipes(folder, text)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


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
