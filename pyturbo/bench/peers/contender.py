"""Start the process of a contender (child.py), send it requests, and report its failures."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pyturbo
from pyturbo.bench.memory_group import MemoryGroup

#: Engines that need seconds per token read this many times fewer tokens in a turn.
SLOWNESS = {"mlx": 32}

PATIENCE = 600.0  # seconds for one reply
_LAST_LINES = 3  # of standard error, shown if a process ends early

#: Packages to install for a contender that is missing.
PACKAGES = {"llama": "llama-cpp-python", "mlx": "mlx[cpu] mlx-lm"}


def command(kind: str) -> list[str]:
    return [sys.executable, "-m", "pyturbo.bench.peers.child", kind]


class Contender:
    """An engine in a process of its own. The first failure ends the process and stays in `failure`."""

    def __init__(
        self,
        name: str,
        kind: str,
        threads: int,
        patience: float = PATIENCE,
        group: MemoryGroup | None = None,
    ) -> None:
        self.name, self.kind, self.failure = name, kind, ""
        self.facts: dict[str, str] = {}
        self.loaded: dict[str, float] = {}  # see `child.loaded`
        self._patience, self._rest = patience, b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        # Run from the folder of the package, so that the child imports the same one.
        self._process = subprocess.Popen(
            command(kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=Path(pyturbo.__file__).parents[1],
            env=os.environ | limits,
        )
        if group is not None:
            try:
                group.add(self._process.pid)
            except OSError as error:
                self._fail(f"its memory cannot be limited: {error}")

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, **options: Any) -> None:
        reply = self._ask({"do": "load", **options})
        if "missing" in reply:
            self._fail(f"not installed: pip install {PACKAGES.get(self.kind, reply['missing'])}")
        self.facts, self.loaded = reply.get("facts", {}), reply.get("load", {})
        if self.kind in SLOWNESS:
            self.facts["tokens of a turn"] = f"1/{SLOWNESS[self.kind]}"

    def portion(self, tokens: int) -> int:
        """Return how many of `tokens` tokens it reads; slow engines read fewer."""
        return max(1, tokens // SLOWNESS.get(self.kind, 1))

    def seconds(self, do: str, **options: int) -> float | None:
        """Send a request and return its seconds; None if the contender has failed, now or before."""
        return self._ask({"do": do, **options}).get("seconds")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        self._process.wait()
        self._errors.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.failure:
            return {}
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            return self._fail(self._last_words())
        line = self._line()
        if line is None:
            return self._fail(f"no reply within {self._patience:.0f} seconds")
        if not line:
            return self._fail(self._last_words())
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _line(self) -> bytes | None:
        """Return the next line of output; empty if the process has ended, None if it takes too long."""
        assert self._process.stdout is not None
        file, end = self._process.stdout.fileno(), time.monotonic() + self._patience
        while b"\n" not in self._rest:
            if not select.select([file], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            more = os.read(file, 1 << 16)
            if not more:
                return b""
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        words = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
        return f"ended with status {status}: {' | '.join(words) or 'nothing on standard error'}"

    def _fail(self, why: str) -> dict[str, Any]:
        self.failure = why
        self.close()
        return {}
