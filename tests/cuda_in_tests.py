"""Soft CUDA in the place of NVIDIA's driver and compiler.

PYTURBO_TEST_GPU=1 asks for the GPU of this machine instead.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

PACKAGE = importlib.util.find_spec("pyturbo")  # found, not imported
assert PACKAGE is not None
assert PACKAGE.origin is not None
LIBRARY = Path(PACKAGE.origin).with_name("libsoft_cuda.so")

IN_USE = LIBRARY.exists() and os.environ.get("PYTURBO_TEST_GPU") != "1"
if IN_USE:
    os.environ |= {"PYTURBO_CUDA_DRIVER": str(LIBRARY), "PYTURBO_NVRTC": str(LIBRARY)}
