"""Python processes of their own, for tests of how a process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

#: What tells glibc to look for damage to the heap at every call, and to abort when it finds some. Since
#: version 2.34 that is a library of its own. Sanitizers, which are preloaded too, look more closely.
HEAP_CHECKS = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
HEAP_LIBRARY = "libc_malloc_debug.so.0"


def environment(heap_checks: bool) -> dict[str, str]:
    """Return the environment of a process whose devices have a worker thread to end."""
    variables = {**os.environ, "PYTURBO_THREADS": "2"}
    if not heap_checks and variables.get("LD_PRELOAD") == HEAP_LIBRARY:
        del variables["LD_PRELOAD"]
    if heap_checks and "LD_PRELOAD" not in variables and find_library("c_malloc_debug") is not None:
        variables |= HEAP_CHECKS | {"LD_PRELOAD": HEAP_LIBRARY}
    return variables


def run_script(script: str, folder: Path, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs Python code in `folder`, under checks of the heap unless it forks.

    The library that checks has a lock of its own, which a child may find taken by a thread of its parent.
    Python 3.12 and newer warn of every fork in a process with threads, which is what some of it is about.
    """
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", script],
        cwd=folder,
        env=environment(heap_checks="fork" not in script),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def require_clean(done: subprocess.CompletedProcess[str]) -> None:
    """It ended with status 0 and wrote nothing to stderr."""
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
