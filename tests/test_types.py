"""mypy finds nothing: its settings are in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_types_agree() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # heap checks
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    if os.environ.get("CI") == "true":  # where nobody reads the cache; writing it takes a third of the time
        command.append(f"--cache-dir={os.devnull}")
    found = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
