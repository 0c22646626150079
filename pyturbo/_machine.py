"""The memory of this machine and of this process."""

from __future__ import annotations

import os
import resource
import sys


def machine_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Return the largest number of bytes that this process has had in memory, with mapped files."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
