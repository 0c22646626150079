"""``pyturbo convert`` as a user types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyturbo.cli import main
from tiny_configs import MODELS
from tiny_models import write_hf


def test_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(write_hf(MODELS["qwen3_moe"], tmp_path / "hf")), str(tmp_path / "mlx")
    assert main(["convert", source, target, "--bits", "8", "--group-size", "32", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["path"] == target
    assert done["files"] == 1
    assert done["nbytes"] == sum(
        entry["data_offsets"][1] - entry["data_offsets"][0]
        for name, entry in header(tmp_path / "mlx" / "model.safetensors").items()
        if name != "__metadata__"
    )
    assert main(["convert", source, target]) == 1
    assert (
        capsys.readouterr().err == f"pyturbo: {target}: already exists; --force, or force=True, replaces it\n"
    )
    assert main(["convert", source, target, "--force"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "bits per parameter" in shown.err
    assert main(["info", target, "--json"]) == 0
    assert "4 bits in groups of 64" in json.loads(capsys.readouterr().out)["formats"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mxfp4", "--bits", "3"], "--bits: expected 4 for mxfp4, got 3"),
        (["nvfp4", "--group-size", "64"], "--group-size: expected 16 for nvfp4, got 64"),
    ],
)
def test_a_format_that_a_mode_does_not_have_is_wrong_usage(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path), str(tmp_path / "mlx"), "--mode", *words]) == 2
    assert capsys.readouterr().err == f"pyturbo: {message}; see pyturbo convert --help\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(number: int, status: int, tmp_path: Path) -> None:
    source = write_hf(MODELS["qwen3_moe"], tmp_path / "hf")
    code = (
        "import faulthandler, sys, time\n"
        "faulthandler.dump_traceback_later(30, exit=True)\n"  # where it stands, if it does not end
        "from pyturbo.cli import main\n"
        "from pyturbo.convert.shards import Shards\n"
        "Shards.write = lambda *arguments: (print(flush=True), time.sleep(0.2))\n"
        f"sys.exit(main(['convert', {str(source)!r}, {str(tmp_path / 'mlx')!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have had it ignored
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it works
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (status, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def header(path: Path) -> dict:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0
    return json.loads(data[8 : 8 + length])
