"""Our declarations of the driver API against NVIDIA's header, where a CUDA toolkit is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")


@pytest.mark.slow
@pytest.mark.skipif(not (TOOLKIT / "cuda.h").exists(), reason="there is no CUDA toolkit")
def test_declarations_are_those_of_the_toolkit() -> None:
    command = ["c++", "-std=c++20", "-fsyntax-only", f"-I{TOOLKIT}", f"-I{REPOSITORY / 'native'}"]
    source = REPOSITORY / "tests" / "cuda" / "abi.cpp"
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
