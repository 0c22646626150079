"""Runs the tests under AddressSanitizer and UndefinedBehaviorSanitizer, one process for each test file.

`make sanitize` calls it with the Python of the build that has them. Arguments are test files, folders or
single tests; without any, all tests run. What a sanitizer finds goes to a file, since pytest hides what a
process writes before it ends, and is printed below the part that it was found in. The exit status is 0 when
all tests passed and there was no report.
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
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Python is not instrumented: what it never frees would count as leaks.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def preloaded(compiler: str) -> str:
    """The runtimes of GCC, which must come before Python's own libraries."""
    names = ("libasan.so", "libubsan.so")
    paths = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return " ".join(done.stdout.strip() for done in paths)


def parts(asked: list[str]) -> list[str]:
    """The test files among what was asked for; a single test is a part of its own."""
    found: list[str] = []
    for name in asked:
        path = ROOT / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else []
        found += [str(file.relative_to(ROOT)) for file in files] if path.is_dir() else [name]
    return found


def environment(reports: Path, compiler: str) -> dict[str, str]:
    options = {name: f"{value}:log_path={reports / name.lower()}" for name, value in OPTIONS.items()}
    return {**os.environ, **options, "LD_PRELOAD": preloaded(compiler)}


def run(part: str, env: dict[str, str], reports: Path, log: Path) -> bool:
    """One part; its output goes to `log` and is shown where something went wrong."""
    begin = time.monotonic()
    pytest = Path(sys.executable).parent / "pytest"  # python -m pytest would take the package from here
    with log.open("wb") as out:
        status = subprocess.run(
            [pytest, "-q", "-p", "no:cacheprovider", part],
            cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    found = sorted(reports.iterdir())
    counts = re.findall(r"^(?:\d+ \w+(?:, )?)+ in .*$", text, re.MULTILINE)
    summary = counts[-1] if counts else "ended without a summary"
    print(f"{part}: status {status}, {summary} ({time.monotonic() - begin:.0f} s)", flush=True)
    if status not in (0, 5):  # 5: the file has no test that this machine can run
        print(text, flush=True)
    for report in found:
        print(report.read_text(errors="replace"), flush=True)
        report.unlink()
    return status in (0, 5) and not found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or single tests")
    parser.add_argument("--compiler", default="c++", help="the one the build was made with")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pyturbo-sanitize-"))
    (folder / "reports").mkdir()
    env = environment(folder / "reports", arguments.compiler)
    todo = parts(arguments.tests)
    failed = []
    try:
        for number, part in enumerate(todo, 1):
            print(f"[{number}/{len(todo)}] ", end="", flush=True)
            if not run(part, env, folder / "reports", folder / "log"):
                failed.append(part)
    finally:
        shutil.rmtree(folder)
    print(f"{len(todo) - len(failed)} of {len(todo)} parts passed without a report")
    for part in failed:
        print(f"failed: {part}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
