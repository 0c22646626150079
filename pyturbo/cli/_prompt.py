"""Read the lines of a chat: with an editor on a terminal, else from standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyturbo.cli._stdin import read_line

#: Returns a line; EOFError is the end of input, KeyboardInterrupt discards the line.
Reader = Callable[[], str]


def is_interactive() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def reader() -> Reader:
    return _editor() if is_interactive() else _plain


def data_folder() -> Path:
    """Return the folder for data of this user."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pyturbo"
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "pyturbo"


def _plain() -> str:
    line = read_line()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def _editor() -> Reader:
    """Return a reader with a line editor: Enter sends, Alt-Enter inserts a line break."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    history: History
    try:
        folder = data_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "chat_history").touch(mode=0o600)
        history = FileHistory(str(folder / "chat_history"))
    except OSError:
        history = InMemoryHistory()
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(history=history, key_bindings=keys)
    return lambda: session.prompt("> ")
