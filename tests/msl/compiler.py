"""The shaders as clang compiles them, without a Mac.

Clang reads them as C++14 with the words device, constant and threadgroup as numbered address spaces
(metal_stdlib beside this file), after the few spellings it does not know are replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("shaders", "tests/shaders")
SHADERS = sorted(
    str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.metal")
)

OLDEST = 17  # the first with arithmetic of bfloat
FLAGS = [
    *("--target=arm64-apple-macos14", "-x", "c++", "-std=c++14", "-nostdinc", "-fno-exceptions", "-fno-rtti"),
    *("-fno-lax-vector-conversions", "-fno-color-diagnostics", "-Xclang", "-cl-single-precision-constant"),
]

ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.DOTALL)
FUNCTION_CONSTANT = re.compile(r"^(?=constant .*\[\[function_constant)", re.MULTILINE)
THREADGROUP_VARIABLE = re.compile(r"^( +)(?=threadgroup [\w<>:, ]*\w[\[,;])", re.MULTILINE)
VECTOR = re.compile(r"\b((?:bool|u?(?:char|short|int|long)|half|bfloat|float)[234]|vec<[\w, ]+>)\(")
LITERAL = re.compile(r"\b(\d+\.\d*(?:e[-+]?\d+)?)(h|bf)\b")


def newest_clang() -> str | None:
    versions: dict[str, int] = {}
    for name in ("clang", *(f"clang-{version}" for version in range(OLDEST, 31))):
        if shutil.which(name):
            text = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            versions[name] = int(text.partition("clang version ")[2].partition(".")[0])
    newest = max(versions, key=versions.__getitem__, default="")
    return newest if versions.get(newest, 0) >= OLDEST else None


CLANG = newest_clang()
MISSING = f"clang {OLDEST} or newer is missing"
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CLANG is None and os.environ.get("CI") != "true", reason=MISSING),
]


def as_clang_reads_it(text: str) -> str:
    """`text` with its lines where they are, and MSL's own spellings as C++."""
    text = FUNCTION_CONSTANT.sub("extern ", text)
    text = ATTRIBUTE.sub(lambda match: "".join(re.findall(r"\\?\n", match[0])), text)
    text = THREADGROUP_VARIABLE.sub(r"\1static ", text)
    text = LITERAL.sub(lambda match: f"{'half' if match[2] == 'h' else 'bfloat'}({match[1]}f)", text)
    return VECTOR.sub(r"vector_of<\1>(", text)


def texts() -> dict[str, str]:
    """Return all shaders and headers."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return {
        str(path.relative_to(ROOT)): path.read_text() for path in paths if path.suffix in (".metal", ".h")
    }


def write_sources(root: Path, changed: dict[str, str] | None = None) -> None:
    """All shaders and headers under `root`, as clang reads them; `changed` has the text of some of them."""
    for name, text in {**texts(), **(changed or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(as_clang_reads_it(text))


def clang(root: Path, shader: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Compile a shader under `root`."""
    assert CLANG, MISSING
    folders = [f"-I{Path(__file__).parent}", f"-I{root / 'shaders'}"]
    command = [CLANG, *FLAGS, *flags, *folders, shader]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
