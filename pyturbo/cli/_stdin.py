"""A prompt from the command line and from standard input."""

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

#: Seconds after the start in which a pipe beside a prompt has to show data, or its end.
PATIENCE = 1.0

#: Seconds of reading after which someone who waits is told what for.
_LONG = 2.0


class PromptText:
    """The prompt that was given, a blank line, and what was piped in; or one of the two.

    Beside a prompt nothing is waited for: read are a file that nobody else has begun to read, and a pipe that
    has data, or has ended, by the time the text is needed. A pipe where nothing happens may belong to whoever
    started the command: it is not read, and a note says so. `wait` reads standard input in any case.
    """

    def __init__(self, given: str | None, wait: bool) -> None:
        self._end, self._given = time.monotonic() + PATIENCE, given
        self._piped: str | None = None
        if sys.stdin is None and wait:
            raise UsageError("--stdin: expected an open standard input, it is closed")
        if sys.stdin is None or (sys.stdin.isatty() and not wait):
            if given is None:
                raise UsageError("expected a prompt, as an argument or on standard input")
            self._piped = ""
        elif given is None or wait:
            self._piped = _read()
            if not self._piped and given is None:
                raise UsageError("expected a prompt, as an argument or on standard input, which is empty")
        else:
            self._piped = _read_if_ready(0.0)

    def text(self) -> str:
        """Return the whole prompt, after a last look at a pipe that had nothing yet."""
        if self._piped is None:
            self._piped = _read_if_ready(max(0.0, self._end - time.monotonic()))
        if self._piped is None:
            note("standard input is open, but nothing came from it: not read; --stdin waits for it")
        return "\n\n".join(part for part in (self._given, self._piped or None) if part is not None)


def _read() -> str:
    telling = threading.Timer(_LONG, note, ["reading standard input to its end"])
    telling.daemon = True
    telling.start()
    try:
        buffer = getattr(sys.stdin, "buffer", None)
        return str(sys.stdin.read() if buffer is None else _decoded(buffer.read()))
    finally:
        telling.cancel()


def read_line() -> str:
    """Read a line of UTF-8 with its end; "" is the end of standard input, or a closed one."""
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
    """Read what is there; None if it is a pipe where nothing happens within `seconds`."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # closed, or an object that is no file
        return ""
    if stat.S_ISREG(kind):
        return _read() if os.lseek(descriptor, 0, os.SEEK_CUR) == 0 else ""
    if not stat.S_ISFIFO(kind) and not stat.S_ISSOCK(kind):
        return ""
    return _read() if select.select([descriptor], [], [], seconds)[0] else None
