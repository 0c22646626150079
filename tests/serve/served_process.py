"""`pyturbo serve` in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from processes import environment

TIMEOUT = 60.0


class ServedProcess:
    """A server on a free port while it is entered.

    Attributes:
        port: Which it said.
        url: Where.
        said: The lines of its standard error so far.
    """

    def __init__(self, *arguments: str, variables: Mapping[str, str] | None = None, script: str = "") -> None:
        """Take options of the command, variables of its environment, and Python code to run before it."""
        code = f"{script}\nimport sys\nfrom pyturbo.cli import main\nsys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--threads", "1", *arguments]
        self.said: list[str] = []
        self._ready, self.port = threading.Event(), 0
        self.process = subprocess.Popen(
            command,
            cwd=Path(__file__).anchor,
            env=environment(heap_checks=False) | dict(variables or {}),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"http://\S+:(\d+)/v1", line):
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()

    def __enter__(self) -> ServedProcess:
        assert self._ready.wait(TIMEOUT), "the server does not start"
        assert self.port, "".join(self.said)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, timeout: float = TIMEOUT) -> tuple[int, str]:
        """Wait for its end. Returns the status, and what it said after it was ready."""
        status = self.process.wait(timeout)
        self._reader.join()
        return status, "".join(self.said[1:])

    def counts(self) -> tuple[int, int]:
        """Return how many replies run and wait."""
        found = httpx.get(f"{self.url}/health", timeout=TIMEOUT).json()
        return found["running"], found["waiting"]

    def usage(self) -> dict[str, int]:
        """Return what the process holds: bytes of memory, threads and open files. Linux only."""
        folder = Path(f"/proc/{self.process.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return {
            "memory": pages * os.sysconf("SC_PAGE_SIZE"),
            "threads": len([*(folder / "task").iterdir()]),
            "files": len([*(folder / "fd").iterdir()]),
        }


def events(answer: httpx.Response) -> Iterator[Any]:
    """Yield the data of server-sent events."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            text = line.removeprefix("data: ")
            yield text if text == "[DONE]" else json.loads(text)


def refuses(port: int) -> bool:
    """Return whether nobody listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return True
    return False
