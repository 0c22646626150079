"""``pyturbo convert`` as a user types it."""

from __future__ import annotations

import json
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
    assert capsys.readouterr().err == f"pyturbo: {target}: is there already; --force replaces it\n"
    assert main(["convert", source, target, "--force"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "bits a parameter" in shown.err
    assert main(["info", target, "--json"]) == 0
    assert "4 bits in groups of 64" in json.loads(capsys.readouterr().out)["formats"]


def header(path: Path) -> dict:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0
    return json.loads(data[8 : 8 + length])
