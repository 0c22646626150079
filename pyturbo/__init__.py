"""pyturbo: kernels written once in Metal Shading Language, run on any host from Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    from pyturbo import _native
except ImportError as error:
    raise ImportError(
        f"the native part of pyturbo cannot be loaded ({error}). In a checkout, run `make build` and use "
        ".venv/bin/python from another folder, or `pip install .` first"
    ) from error
from pyturbo import errors

if TYPE_CHECKING:
    from pyturbo import ops as ops
    from pyturbo._manifest import kernels as kernels
    from pyturbo._paths import get_include as get_include
    from pyturbo._program import Program as Program
    from pyturbo._sampling import Sampler as Sampler
    from pyturbo.generation import Chunk as Chunk
    from pyturbo.generation import Completion as Completion
    from pyturbo.generation import Stats as Stats
    from pyturbo.model import Model as Model
    from pyturbo.model import load as load
    from pyturbo.session import Session as Session
    from pyturbo.text import Tokenizer as Tokenizer

Buffer = _native.Buffer
Device = _native.Device
Kernel = _native.Kernel
devices = _native.device_list

#: The module of each name that is imported when it is first used; "" for a module itself.
_ON_USE = {
    "Chunk": "generation",
    "Completion": "generation",
    "Model": "model",
    "Program": "_program",
    "Sampler": "_sampling",
    "Session": "session",
    "Stats": "generation",
    "Tokenizer": "text",
    "get_include": "_paths",
    "kernels": "_manifest",
    "load": "model",
    "ops": "",
}

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
    if name not in _ON_USE:
        raise AttributeError(f"module 'pyturbo' has no attribute {name!r}")
    if not _ON_USE[name]:
        return importlib.import_module(f"pyturbo.{name}")
    value = getattr(importlib.import_module(f"pyturbo.{_ON_USE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
