"""The memory of this machine and of this process."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")
_MEMORY = Path("/proc/meminfo")


def machine_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int:
    """Return the bytes that this process can take without others losing theirs, within its control group."""
    free = machine_memory()
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", _read(_MEMORY), re.MULTILINE)
    if found is not None:
        free = int(found[1]) * 1024
    return max(0, min([free, *_group_rooms()]))


def resident_memory() -> int | None:
    """Return the bytes that this process has in memory, with mapped files; None if it is not known."""
    fields = _read(_PROCESS / "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def used_memory() -> int:
    """Return the bytes that this process has in memory, with mapped files; if unknown, the most so far."""
    found = resident_memory()
    return peak_memory() if found is None else found


def peak_memory() -> int:
    """Return the largest number of bytes that this process has had in memory, with mapped files."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _group_rooms() -> list[int]:
    """Return what the control groups of this process still allow, apart from files that can be dropped."""
    rooms = []
    for line in _read(_PROCESS / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            limit, used, cached = "memory.max", "memory.current", "inactive_file"
            root = _CGROUPS
        elif "memory" in controllers.split(","):
            limit, used, cached = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            root = _CGROUPS / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            most, now = _read(folder / limit).strip(), _read(folder / used).strip()
            if most.isdigit() and now.isdigit():
                found = re.search(rf"^{cached} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
                rooms.append(int(most) - int(now) + (int(found[1]) if found else 0))
    return rooms


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
