"""``pyturbo pack`` as a user types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyturbo.cli import main
from pyturbo.pack import verify
from tiny_configs import MODELS
from tiny_models import write_mlx


def test_pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(write_mlx(MODELS["mixtral"], tmp_path / "mlx")), str(tmp_path / "packed")
    assert main(["pack", source, target, "--check"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "15 experts of 3 layers in " in shown.err
    assert shown.err.endswith("\nevery value equals that of the source\n")
    assert main(["pack", source, target]) == 1
    assert (
        capsys.readouterr().err == f"pyturbo: {target}: already exists; --force, or force=True, replaces it\n"
    )
    assert main(["pack", source, target, "--force", "--expert-bits", "3", "--check"]) == 0
    shown = capsys.readouterr()
    assert shown.err.endswith(
        "\nevery value equals that of the source, requantised to 3 bits where it is of an expert\n"
    )
    assert "relative error of down_proj: 0." in shown.err
    assert "relative error of all experts: 0." in shown.err
    assert main(["pack", source, target, "--force", "--json", "--expert-bits", "2"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["path"] == target
    assert done["experts"] == 15
    assert list(done["errors"]) == ["gate_proj", "up_proj", "down_proj", "all"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_is_finished(number: int, status: int, tmp_path: Path) -> None:
    source = write_mlx(MODELS["mixtral"], tmp_path / "mlx")
    code = (
        "import faulthandler, sys, time\n"
        "faulthandler.dump_traceback_later(30, exit=True)\n"  # where it stands, if it does not end
        "from pyturbo.cli import main\n"
        "from pyturbo.pack.plan import LayerJob\n"
        "record = LayerJob.record\n"
        "def slow(self, expert):\n"
        "    if self.layer.file.endswith('2.bin'):\n"
        "        print(flush=True)\n"
        "        time.sleep(0.2)\n"
        "    return record(self, expert)\n"
        "LayerJob.record = slow\n"
        f"sys.exit(main(['pack', {str(source)!r}, {str(tmp_path / 'packed')!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have had it ignored
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it works on the last layer
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    (left,) = [path for path in tmp_path.iterdir() if path.name != "mlx"]
    assert process.returncode == status
    assert errors == f"finished files stay in {left}; the same command continues from there\n"
    assert main(["pack", str(source), str(tmp_path / "packed")]) == 0
    assert verify(tmp_path / "packed", source).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlx", "packed"]
