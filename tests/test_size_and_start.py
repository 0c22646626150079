"""How large the package is, and how soon it does something. Bounds leave room for a busy machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import files
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="with sanitizers it is larger and slower"
)

#: Bytes of the package as a wheel holds it, before it is compressed. x86-64 has more levels.
LARGEST = 34_500_000 if platform.machine() in ("x86_64", "AMD64") else 32_500_000

#: Seconds from the start of the process to the first token; about 0.4 on a quiet machine.
LONGEST_WAIT = 3.0

#: What only a build for tests has. Soft Metal compiles the texts that wheels have on macOS.
FOR_TESTS = ["_native_tests*", "_soft_*_tests*", "libsoft_*"]
FOR_TESTS += [] if sys.platform == "darwin" else ["*.metal"]


def test_the_package_is_small() -> None:
    sizes = {
        path: Path(str(path.locate())).stat().st_size
        for path in files("pyturbo-llm") or ()
        if not any(path.match(pattern) for pattern in ("*.pyc", *FOR_TESTS))
    }
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    assert 10_000_000 < sum(sizes.values()) < LARGEST, largest


def seconds_to_first_token(folder: Path) -> float:
    command = [sys.executable, "-m", "pyturbo", "generate", "Once upon a time", "--max-tokens", "200"]
    begin = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        seconds = time.perf_counter() - begin
        process.kill()
    assert first == b","
    return seconds


@pytest.mark.slow
def test_the_first_token_comes_soon(tmp_path: Path) -> None:
    """Once in a few tries: something else may have the processor."""
    assert any(seconds_to_first_token(tmp_path) < LONGEST_WAIT for _ in range(5))


@pytest.mark.slow
def test_importing_it_is_quick(tmp_path: Path) -> None:
    """At most 50 ms of the processor's time more than NumPy, once in a few tries; it is about 13 to 22."""
    code = "import time, numpy; t = time.process_time(); import pyturbo; print(time.process_time() - t)"
    seconds = (
        float(subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True))
        for _ in range(5)
    )
    assert any(taken < 0.05 for taken in seconds)
