"""Options of CMakeLists.txt that do not go together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.skipif(CMAKE is None, reason="cmake is missing")
def test_the_tests_need_the_checker(tmp_path: Path) -> None:
    assert CMAKE is not None
    command = [CMAKE, "-S", str(ROOT), "-B", str(tmp_path), "-DPYTURBO_TESTS=ON", "-DPYTURBO_CHECKED=OFF"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "PYTURBO_TESTS: expected PYTURBO_CHECKED=ON with it" in " ".join(done.stderr.split())
