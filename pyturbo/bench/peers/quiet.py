"""Tells whether other processes use the processors, as Linux counts their time."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from pyturbo.errors import StateError

_PROC = Path("/proc")
_MOST = 0.1  # cores that others may use
_SAMPLE = 1.0  # seconds
_NAMED = 3  # processes in a message
_SHARE = 0.01  # of a core, from which on a process is named


@dataclass(frozen=True)
class Others:
    """What others have used: in cores, and by process."""

    cores: float
    processes: dict[str, float]

    @property
    def quiet(self) -> bool:
        return self.cores <= _MOST

    def __str__(self) -> str:
        ranked = sorted(self.processes.items(), key=lambda item: -item[1])
        named = [f"{name} {cores:.0%}" for name, cores in ranked[:_NAMED] if cores >= _SHARE]
        listed = ": " + ", ".join(named) if named else ""
        return f"other processes use {self.cores:.1f} of {os.cpu_count()} cores{listed}"


class Watch:
    """Counts the time of processors from its making on."""

    def __init__(self) -> None:
        self._begin, self._busy, self._own = time.monotonic(), _busy(), _own()
        self._each = _each()

    def others(self) -> Others:
        """Return what processes other than this one, its children and theirs have used.

        Children count once they have ended and been waited for, or while they run.
        """
        seconds = max(time.monotonic() - self._begin, 1e-6)
        family = _family()
        living = _each()
        grown = {pid: used - self._each.get(pid, (name, 0.0))[1] for pid, (name, used) in living.items()}
        ours = _own() - self._own + sum(used for pid, used in grown.items() if pid in family)
        cores = max(0.0, _busy() - self._busy - ours) / seconds
        processes = {
            f"{living[pid][0]} (process {pid})": used / seconds
            for pid, used in grown.items()
            if pid not in family and pid != os.getpid()
        }
        return Others(cores, processes)


def require_quiet() -> None:
    """Raise a StateError if other processes use the processors for a second from now on."""
    watch = Watch()
    time.sleep(_SAMPLE)
    others = watch.others()
    if not others.quiet:
        raise StateError(f"bench: {others}; ratios need a quiet machine, or no --quiet-check")


def _busy() -> float:
    """Return the seconds in which the processors worked, or were taken by other machines."""
    try:
        fields = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        raise StateError(f"bench: --quiet-check: needs {_PROC}, which this system does not have") from None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Return the seconds of this process, and of children that it has waited for."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _each() -> dict[int, tuple[str, float]]:
    """Return the names and seconds of all processes that can be seen."""
    found = {}
    for pid, fields in _stats():
        found[pid] = fields[0], (int(fields[12]) + int(fields[13])) / os.sysconf("SC_CLK_TCK")
    return found


def _family() -> set[int]:
    """Return the children of this process, and theirs."""
    parents = {pid: int(fields[2]) for pid, fields in _stats()}
    family = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family and pid not in family}
        family |= more
        grown = bool(more)
    return family - {os.getpid()}


def _stats() -> list[tuple[int, list[str]]]:
    """Return the fields of each process: its name, state, parent and so on."""
    found = []
    for path in _PROC.iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text(errors="replace")  # a name may be any bytes
            except OSError:  # it has ended
                continue
            name, _, rest = text.partition("(")[2].rpartition(")")
            found.append((int(path.name), [name, *rest.split()]))
    return found
