"""Runs the front end on shader text written in the test."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frontend.__main__ import main


@dataclass
class Result:
    status: int
    errors: list[str]  # "name.metal:line: error: ..." with the folder removed
    kernels: dict[str, Any]
    cpp: str
    cu: str
    out: Path


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """run(text, **others): `text` is a.metal; others are further files, `name__h` for name.h."""

    def run_(text: str, **others: str) -> Result:
        root, out = tmp_path / "shaders", tmp_path / "out"
        root.mkdir(exist_ok=True)
        files = {"a.metal": text, **{name.replace("__", "."): body for name, body in others.items()}}
        for name, body in files.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(textwrap.dedent(body).lstrip("\n"))
        shaders = [str(root / name) for name in files if name.endswith(".metal")]
        options = ["--library", "test", "--root", str(root), "--out", str(out), "--sources", str(out)]
        status = main([*options, "--manifest", str(out / "m.json"), *shaders])
        errors = [line.replace(f"{root}/", "") for line in capsys.readouterr().err.splitlines()]
        kernels, cpp, cu = {}, "", ""
        if status == 0:
            kernels = {k["name"]: k for k in json.loads((out / "m.json").read_text())["kernels"]}
            cpp, cu = (out / "a.cpp").read_text(), (out / "a.cu").read_text()
        return Result(status, errors, kernels, cpp, cu, out)

    return run_
