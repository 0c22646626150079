"""Runs the C++ preprocessor over a shader, with Metal's own headers empty."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .tokens import Line, words

_SYSTEM_HEADERS = words(
    "metal_stdlib metal_array metal_atomic metal_common metal_compute metal_config metal_extended_vector"
    " metal_geometric metal_integer metal_limits metal_logging metal_math metal_matrix metal_numeric"
    " metal_pack metal_packed_vector metal_quadgroup metal_relational metal_simdgroup metal_simdgroup_matrix"
    " metal_type_traits metal_types metal_uniform simd/simd.h"
)

_FLAGS = [
    *("-E", "-x", "c++", "-std=c++20", "-nostdinc"),
    *("-D__METAL__=1", "-D__METAL_VERSION__=310", "-D__HAVE_BFLOAT__=1"),
]

_MARKER = re.compile(r'#(?:line)? ?(\d+) "((?:[^"\\]|\\.)*)"')


class PreprocessorError(Exception):
    """The compiler's own messages, as it printed them."""


def preprocess(compiler: str, source: Path, includes: Sequence[Path]) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="pyturbo-frontend-") as folder:
        for name in _SYSTEM_HEADERS:
            header = Path(folder, name)
            header.parent.mkdir(exist_ok=True)
            header.touch()
        paths = [flag for path in includes for flag in ("-I", str(path))]
        command = [*compiler.split(), *_FLAGS, *paths, "-isystem", folder, str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise PreprocessorError(result.stderr.strip())
        return _split(result.stdout, str(source))


def _split(text: str, source: str) -> list[Line]:
    lines: list[Line] = []
    file, number = source, 1
    for content in text.split("\n"):
        marker = _MARKER.match(content)
        if marker:
            number, file = int(marker[1]), re.sub(r"\\(.)", r"\1", marker[2])
            continue
        if content and not file.startswith("<"):
            lines.append(Line(file, number, content))
        number += 1
    return lines
