"""Read a prompt from the command line and from standard input."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time

from pyturbo.cli._output import note
from pyturbo.cli._usage import UsageError
from pyturbo.errors import FormatError

#: Seconds after the start within which a pipe must have data, or end, if there is a prompt argument.
PATIENCE = 1.0

#: Seconds of reading after which a note says what the command waits for.
_LONG = 2.0


class PromptText:
    """Joins the prompt argument and standard input with a blank line; either may be missing.

    If there is a prompt argument, standard input is read only if it is a file of which nothing has been read
    yet, or a pipe that has data, or has ended, by the time the text is needed. Any other pipe may belong to
    the process that started the command; it is not read, and a note says so. `wait` reads standard input to
    its end in any case.
    """

    def __init__(self, given: str | None, wait: bool) -> None:
        self._end, self._given = time.monotonic() + PATIENCE, given
        self._piped: str | None = None
        if sys.stdin is None and wait:
            raise UsageError("--stdin: expected an open standard input, got a closed one")
        if sys.stdin is None or (sys.stdin.isatty() and not wait):
            if given is None:
                raise UsageError("expected a prompt as an argument or on standard input")
            self._piped = ""
        elif given is None or wait:
            self._piped = _read()
            if not self._piped and given is None:
                raise UsageError("expected a prompt as an argument or on standard input, got empty input")
        else:
            self._piped = _read_if_ready(0.0)

    def text(self) -> str:
        """Return the whole prompt; a pipe that had no data yet is tried once more."""
        if self._piped is None:
            self._piped = _read_if_ready(max(0.0, self._end - time.monotonic()))
        if self._piped is None:
            note("standard input had no data and was not read; --stdin waits for it")
        return "\n\n".join(part for part in (self._given, self._piped or None) if part is not None)


def _read() -> str:
    telling = threading.Timer(_LONG, note, ["reading standard input until it ends"])
    telling.daemon = True
    telling.start()
    try:
        buffer = getattr(sys.stdin, "buffer", None)
        return str(sys.stdin.read() if buffer is None else _decoded(buffer.read()))
    finally:
        telling.cancel()


def read_line() -> str:
    """Read a line of UTF-8 with its line break; "" if standard input is at its end or closed."""
    if sys.stdin is None:
        return ""
    buffer = getattr(sys.stdin, "buffer", None)
    return str(sys.stdin.readline() if buffer is None else _decoded(buffer.readline()))


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"standard input: expected text in UTF-8, got other bytes: {error}") from None


def _read_if_ready(seconds: float) -> str | None:
    """Read standard input; None if it is a pipe without data for `seconds`."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # closed, or not a file
        return ""
    if stat.S_ISREG(kind):
        return _read() if os.lseek(descriptor, 0, os.SEEK_CUR) == 0 else ""
    if not stat.S_ISFIFO(kind) and not stat.S_ISSOCK(kind):
        return ""
    return _read() if select.select([descriptor], [], [], seconds)[0] else None
