"""What a writer that is killed leaves behind; see tests/killed_writers.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_configs import MODELS
from tiny_models import write_hf


@pytest.mark.slow
@pytest.mark.parametrize("what", ["save", "convert"])
def test_the_target_is_whole_and_the_next_run_cleans_up(what: str, tmp_path: Path) -> None:
    write_hf(MODELS["qwen3"], tmp_path / "model")
    script = Path(__file__).parent / "killed_writers.py"
    done = subprocess.run(
        [sys.executable, str(script), what, str(tmp_path)],
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["died"] > 10
    assert found["leftovers"] > 5  # the kills hit writers at work
    assert found["seen"] > 1  # and some died when all was in place
    assert found["names"] == ["model", "out"]
