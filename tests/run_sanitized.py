"""Runs the tests under AddressSanitizer and UndefinedBehaviorSanitizer, one process for each test file.

`make sanitize` calls it with the Python of the sanitized build. As many processes run at once as there are
cores. Arguments are test files, folders or single tests; without any, all tests run. Sanitizers write their
reports to files, since pytest captures the output of a process that aborts; a report is printed below the
test file that caused it. The exit status is 0 when all tests passed and there was no report.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Leaks are not reported: Python is not instrumented, and never frees some of its memory.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def preloaded(compiler: str) -> str:
    """Return the paths of GCC's sanitizer runtimes, which must be loaded before Python's own libraries."""
    names = ("libasan.so", "libubsan.so")
    paths = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return " ".join(done.stdout.strip() for done in paths)


def parts(asked: list[str]) -> list[str]:
    """Return the test files of the given files and folders; a single test is a part of its own."""
    found: list[str] = []
    for name in asked:
        path = ROOT / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else []
        found += [str(file.relative_to(ROOT)) for file in files] if path.is_dir() else [name]
    return found


def environment(runtimes: str, reports: Path, jobs: int) -> dict[str, str]:
    options = {name: f"{value}:log_path={reports / name.lower()}" for name, value in OPTIONS.items()}
    threads = os.environ.get("PYTURBO_THREADS") or str(max(1, (os.cpu_count() or 1) // jobs))
    return {**os.environ, **options, "LD_PRELOAD": runtimes, "PYTURBO_THREADS": threads}


def run(part: str, runtimes: str, folder: Path, jobs: int) -> tuple[bool, str]:
    """Run one part in `folder`; return whether it passed without a report, and the text to print."""
    begin = time.monotonic()
    pytest = Path(sys.executable).parent / "pytest"  # python -m pytest would take the package from here
    log, reports = folder / "log", folder / "reports"
    reports.mkdir(parents=True)
    with log.open("wb") as out:
        status = subprocess.run(
            [pytest, "-q", "-p", "no:cacheprovider", part],
            cwd=ROOT, env=environment(runtimes, reports, jobs), stdout=out, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    found = [report.read_text(errors="replace") for report in sorted(reports.iterdir())]
    counts = re.findall(r"^(?:\d+ \w+(?:, )?)+ in .*$", text, re.MULTILINE)
    summary = counts[-1] if counts else "ended without a summary"
    shown = [f"{part}: status {status}, {summary} ({time.monotonic() - begin:.0f} s)"]
    passed = status in (0, 5)  # 5: the file has no test that this machine can run
    return passed and not found, "\n".join([*shown, *([] if passed else [text]), *found])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or single tests")
    parser.add_argument("--compiler", default="c++", help="the one the build was made with")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many parts run at once")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pyturbo-sanitize-"))
    runtimes, jobs = preloaded(arguments.compiler), arguments.jobs
    todo = parts(arguments.tests)
    failed = []
    pool = ThreadPoolExecutor(jobs)
    running = {
        pool.submit(run, part, runtimes, folder / str(number), jobs): part for number, part in enumerate(todo)
    }
    try:
        for number, done in enumerate(as_completed(running), 1):
            passed, shown = done.result()
            print(f"[{number}/{len(todo)}] {shown}", flush=True)
            if not passed:
                failed.append(running[done])
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(folder)
    print(f"{len(todo) - len(failed)} of {len(todo)} parts passed without a report")
    for part in failed:
        print(f"failed: {part}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
