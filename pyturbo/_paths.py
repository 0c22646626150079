"""Paths of the headers and data in the installed package."""

from __future__ import annotations

from pathlib import Path

from pyturbo import _device

PACKAGE = Path(_device.__file__).parent


def get_include() -> str:
    """Return the folder of the C++ headers, for extensions built against pyturbo with Cython or C++."""
    return str(PACKAGE / "include")
