"""Servers of completions in processes of their own."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyturbo.errors import StateError

_PATIENCE = 120.0  # seconds until a server answers
_LLAMA_NEEDS = ("llama_cpp", "fastapi", "sse_starlette", "starlette_context", "pydantic_settings")


def pyturbo_server(model: Path, threads: int, precision: str, slots: int, queue: int) -> list[str]:
    """Return the command of our server; nothing is kept of prompts."""
    options = {
        "--slots": slots,
        "--queue": queue,
        "--threads": threads,
        "--precision": precision,
        "--context": 1024,
    }
    words = [word for name, value in options.items() for word in (name, str(value))]
    return [sys.executable, "-m", "pyturbo", "serve", str(model), "--prefix-memory", "0", *words]


def llama_server(model: Path, threads: int) -> list[str] | None:
    """Return the command of the server of llama-cpp-python; None if a package of it is missing."""
    if any(importlib.util.find_spec(name) is None for name in _LLAMA_NEEDS):
        return None
    options = {"--model": model, "--n_threads": threads, "--n_threads_batch": threads, "--n_ctx": 1024}
    words = [word for name, value in options.items() for word in (name, str(value))]
    return [sys.executable, "-m", "llama_cpp.server", *words, "--interrupt_requests", "False"]


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    """Run a server, and give its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=Path(__file__).anchor,  # Python would import from the folder of a process
            stdout=said,
            stderr=said,
            text=True,
        )
        try:
            end = time.monotonic() + _PATIENCE
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    said.seek(0)
                    raise StateError(f"bench: the server does not start: {said.read().strip()[-1000:]}")
                time.sleep(0.05)
            yield port
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
