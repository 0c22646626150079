"""Runs the tests of kernels, models and programs on the NVIDIA GPU of this machine.

`make test-gpu` calls it. First all tests that take the device run on `cuda`, with the machine's own driver
and NVRTC; then the first case of each kernel test runs under each tool of compute-sanitizer, one process for
each test file. The exit status is 0 when all tests passed and no tool reported anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("memcheck", "racecheck", "synccheck")
REPORTED = 99  # the exit status of compute-sanitizer where a tool has found something

# `python -m pytest` would take the package from the checkout.
PYTEST = [str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:cacheprovider", "-k", "cuda"]
OF_SOFT_CUDA = [f"--ignore=tests/{folder}" for folder in ("cuda", "soft_cuda", "nvrtc")]
ENVIRONMENT = {**os.environ, "PYTURBO_TEST_GPU": "1"}


def summary(text: str) -> str:
    """Return what pytest and the sanitizer say at the end."""
    found = re.findall(r"^(?:\d+ \w+(?:, )?)+ in .*$|(?:ERROR|RACECHECK) SUMMARY: .*$", text, re.MULTILINE)
    return "; ".join(found) or "ended without a summary"


def run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def under(tool: str, sanitizer: str, part: Path) -> tuple[bool, str]:
    """Run the first cases of a test file under a tool; return whether all is well, and the text to print."""
    begin = time.monotonic()
    command = [
        sanitizer,
        "--tool",
        tool,
        "--error-exitcode",
        str(REPORTED),
        sys.executable,
        *PYTEST,
        "--quick",
    ]
    status, text = run([*command, str(part.relative_to(ROOT))])
    well = status in (0, 5)  # 5: the file has no test of a device
    shown = f"{tool} {part.name}: status {status}, {summary(text)} ({time.monotonic() - begin:.0f} s)"
    return well, shown if well else f"{shown}\n{text}"


def main() -> int:
    probe = "import pyturbo; pyturbo.Device('cuda')"
    if subprocess.run([sys.executable, "-c", probe], cwd="/", env=ENVIRONMENT, check=False).returncode != 0:
        return 1
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if sanitizer is None:
        print(
            "compute-sanitizer: expected it on the PATH or in /usr/local/cuda/bin, found none",
            file=sys.stderr,
        )
        return 1
    status, text = run([*PYTEST, "-n", "auto", "--dist", "worksteal", *OF_SOFT_CUDA])
    print(text if status else summary(text), flush=True)
    failed = ["tests on the device"] if status else []
    parts = sorted((ROOT / "tests" / "kernels").glob("test_*.py"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {
            pool.submit(under, tool, sanitizer, part): (tool, part) for tool in TOOLS for part in parts
        }
        for number, done in enumerate(as_completed(running), 1):
            well, shown = done.result()
            print(f"[{number}/{len(running)}] {shown}", flush=True)
            if not well:
                failed.append(" ".join(map(str, running[done])))
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
