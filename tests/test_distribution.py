"""The distribution is `pyturbo-llm`: no text tells a reader to install the other project, `pyturbo`, and an
environment with both is named in the import error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import pyturbo
from pyturbo._paths import PACKAGE

ROOT = Path(__file__).parent.parent
HIDDEN = (".ci", ".github")
TEXTS = {"", ".md", ".py", ".pyi", ".pyx", ".pxd", ".toml", ".txt", ".yml", ".yaml", ".sh", ".svg", ".cfg"}

#: The other project's name where pip or importlib.metadata would look it up.
WRONG = re.compile(
    r"""pip3?\s+(install|download|wheel)(\s+-\S+)*\s+["'`]?pyturbo(?![-\w/])"""
    r"""|(?<![-\w./])pyturbo\[\w+[],]"""
    r"""|\b(version|files|distribution|metadata|requires)\(["']pyturbo["']\)"""
)


def texts() -> Iterator[Path]:
    """Every text file of the repository, without what is built there."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name in HIDDEN or not name.startswith((".", "build", "__"))]
        for name in names:
            if Path(name).suffix in TEXTS:
                yield Path(folder) / name


def test_what_is_searched_for() -> None:
    for name, wrong in (("pyturbo", True), ("pyturbo-llm", False)):
        for text in (f"pip install {name}", f"pip install -U '{name}[pull]'", f"{name}[peers,plot]"):
            assert bool(WRONG.search(text)) is wrong, text
    assert WRONG.search('version("' + 'pyturbo")')
    assert not WRONG.search("pip install . && pyturbo devices")


def test_no_text_names_the_other_distribution() -> None:
    pages = list(texts())
    names = {str(page.relative_to(ROOT)) for page in pages}
    assert {"README.md", "Makefile", "pyproject.toml", ".github/workflows/wheels.yml"} <= names
    for page in pages:
        found = WRONG.search(page.read_text(encoding="utf-8"))
        assert found is None, f"{page}: {found and found[0]}"


def test_the_version_is_that_of_this_distribution() -> None:
    assert pyturbo.__version__ == version("pyturbo-llm")


def install(folder: Path, *, init: bool, other: bool) -> None:
    """A copy of the package without its native part; `other`: and beside it the other distribution."""
    left_out = shutil.ignore_patterns("*.so", "__pycache__", "bundled")
    shutil.copytree(PACKAGE, folder / "pyturbo", ignore=left_out)
    if not init:
        (folder / "pyturbo" / "__init__.py").write_text("")
    if other:
        record = folder / "pyturbo-18.7.27.dist-info"
        record.mkdir()
        (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pyturbo\nVersion: 18.7.27\n")


@pytest.mark.parametrize("init", [True, False], ids=["ours", "theirs"])
@pytest.mark.parametrize("other", [True, False], ids=["beside", "alone"])
def test_the_import_error_says_what_to_do(tmp_path: Path, init: bool, other: bool) -> None:
    install(tmp_path, init=init, other=other)
    command = [sys.executable, "-S", "-c", "import pyturbo.cli"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: "), done.stderr
    assert ("the native part" if init else "does not have the __init__.py of pyturbo-llm") in last
    assert ("'pyturbo' 18.7.27 is installed too" in last) is other
    assert ("pip uninstall pyturbo && " in last) is other
    assert last.endswith("pip install --force-reinstall --no-deps pyturbo-llm")
