"""Our declarations of the driver API against NVIDIA's header, which the package nvidia-cuda-runtime has."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the device is for Linux")
def test_declarations_are_those_of_the_toolkit() -> None:
    [header] = [file for file in files("nvidia-cuda-runtime") or () if file.match("include/cuda.h")]
    folders = [Path(str(header.locate())).parent, REPOSITORY / "native"]
    command = ["c++", "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in folders)]
    source = REPOSITORY / "tests" / "cuda" / "abi.cpp"
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
