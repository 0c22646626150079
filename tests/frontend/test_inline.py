"""The shaders with their headers inside: what Metal compiles where there is no metallib."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pyturbo
from frontend.__main__ import main
from frontend.inline import IncludeError, inline

SOURCES = Path(pyturbo.__file__).parent / "shaders"


def kernels(folder: Path, *shaders: Path) -> dict[str, dict]:
    """What the front end reads in these files, by kernel, without where it stands."""
    arguments = ["--library", "x", "--root", str(folder), "--out", str(folder), "--manifest"]
    manifest = folder / "manifest.json"
    assert main([*arguments, str(manifest), *map(str, shaders)]) == 0
    found = json.loads(manifest.read_text())["kernels"]
    named = found.values() if isinstance(found, dict) else found
    return {kernel["name"]: {"arguments": kernel["arguments"]} for kernel in named}


@pytest.mark.slow
def test_the_sources_of_the_package_are_whole(tmp_path: Path) -> None:
    """Read by themselves they have the kernels of the manifest, with the same arguments."""
    want = {name: kernel for name, kernel in pyturbo.kernels().items() if "/" in kernel["file"]}
    stems = {kernel["file"].removesuffix(".metal").replace("/", "_") for kernel in want.values()}
    sources = sorted(source for source in SOURCES.glob("*.metal") if source.stem in stems)
    assert len(sources) == len(stems)
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert re.findall(r'#\s*include\s*"', text) == []
        assert set(re.findall(r"#include (.*)", text)) == {"<metal_stdlib>"}
    copies = [tmp_path / source.name for source in sources]
    for copy, source in zip(copies, sources):  # read where it lies, not where it came from
        copy.write_text(re.sub(r"(?m)^#line.*$", "", source.read_text(encoding="utf-8")))
    found = kernels(tmp_path, *copies)
    assert found.keys() == want.keys()
    for name, kernel in found.items():
        assert kernel["arguments"] == want[name]["arguments"], name


def test_headers_come_once_and_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "once.h").write_text("#pragma once\n#include <metal_stdlib>\nint one;\n")
    (tmp_path / "deep" / "two.h").write_text('#include "../once.h"\nint two;\n')
    shader = tmp_path / "deep" / "shader.metal"
    shader.write_text('#include <metal_stdlib>\n#include "two.h"\n#include "once.h"\nint three;\n')
    assert inline(shader, tmp_path).splitlines() == [
        '#line 1 "deep/shader.metal"',
        "#include <metal_stdlib>",
        '#line 1 "deep/two.h"',
        '#line 1 "once.h"',
        "",
        "",
        "int one;",
        '#line 2 "deep/two.h"',
        "int two;",
        '#line 3 "deep/shader.metal"',
        "",
        "int three;",
    ]
    shader.write_text('#include "absent.h"\n')
    with pytest.raises(IncludeError, match="shader.metal:1: error: header absent.h is not there"):
        inline(shader, tmp_path)
