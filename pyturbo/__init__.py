"""pyturbo: kernels written once in Metal Shading Language, run on any host from Python."""

from __future__ import annotations

from typing import Any

try:
    from pyturbo import _native
except ImportError as error:
    raise ImportError(
        f"the native part of pyturbo cannot be loaded ({error}). In a checkout, run `make build` and use "
        ".venv/bin/python from another folder, or `pip install .` first"
    ) from error
from pyturbo import errors, ops
from pyturbo._manifest import kernels
from pyturbo._paths import get_include
from pyturbo._program import Program
from pyturbo._sampling import Sampler
from pyturbo.generation import Chunk, Completion, Stats
from pyturbo.model import Model, load
from pyturbo.session import Session
from pyturbo.text import Tokenizer

Buffer = _native.Buffer
Device = _native.Device
Kernel = _native.Kernel
devices = _native.device_list

__all__ = [
    "Buffer",
    "Chunk",
    "Completion",
    "Device",
    "Kernel",
    "Model",
    "Program",
    "Sampler",
    "Session",
    "Stats",
    "Tokenizer",
    "devices",
    "errors",
    "get_include",
    "kernels",
    "load",
    "ops",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pyturbo")
    raise AttributeError(f"module 'pyturbo' has no attribute {name!r}")
