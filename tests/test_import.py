"""Importing the package costs little: what is heavy is loaded when it is used."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyturbo
from pyturbo.errors import FileError

HEAVY = {"rich", "jinja2", "tokenizers", "huggingface_hub", "prompt_toolkit", "asyncio"}


def imported(statement: str, folder: Path) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_little(tmp_path: Path) -> None:
    modules = imported("import pyturbo", tmp_path)
    assert not HEAVY & modules
    assert not {"pyturbo.models", "pyturbo.model", "pyturbo.ops"} & modules


def test_the_command_line_starts_without_what_it_may_need(tmp_path: Path) -> None:
    modules = imported(
        "import pyturbo.cli\nfor c in pyturbo.cli.COMMANDS: __import__('pyturbo.cli.' + c)", tmp_path
    )
    assert not HEAVY & modules


def test_every_public_name_is_there() -> None:
    for name in pyturbo.__all__:
        assert getattr(pyturbo, name) is not None
    assert set(pyturbo.__all__) <= set(dir(pyturbo))
    assert not hasattr(pyturbo, "nothing")


#: Evaluates each argument in a process of its own, in which nothing but the package has been imported.
EVALUATE = """
import os, sys
import pyturbo
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        eval(name)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.mark.slow
def test_documented_names_are_there_after_the_import(tmp_path: Path) -> None:
    pages = sorted(Path(__file__).parent.parent.glob("docs/reference/*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE) + re.findall(r"help\(([\w.]+)\)", text)
    assert {"pyturbo.load", "pyturbo.checkpoint"} < set(names)
    command = [sys.executable, "-c", EVALUATE, *sorted(set(names))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


def test_convert_can_be_called_by_its_short_name(tmp_path: Path) -> None:
    from pyturbo.convert import convert

    assert pyturbo.convert.convert is convert
    for call in (pyturbo.convert, convert):
        with pytest.raises(FileError, match="absent: no such file or directory"):
            call(tmp_path / "absent", tmp_path / "target")


def test_pack_can_be_called_by_its_short_name(tmp_path: Path) -> None:
    from pyturbo.pack import pack

    assert pyturbo.pack.pack is pack
    assert inspect.signature(pyturbo.pack) == inspect.signature(pack)
    assert type(pyturbo.pack).__call__.__doc__ == pack.__doc__
    for call in (pyturbo.pack, pack):
        with pytest.raises(FileError):
            call(tmp_path / "absent", tmp_path / "packed")


def test_convert_has_the_signature_and_the_help_of_the_function() -> None:
    assert inspect.signature(pyturbo.convert) == inspect.signature(pyturbo.convert.convert)
    assert next(iter(inspect.signature(pyturbo.convert).parameters)) == "source"
    assert type(pyturbo.convert).__call__.__doc__ == pyturbo.convert.convert.__doc__
