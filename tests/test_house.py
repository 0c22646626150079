"""The rooms of the package: which may import which, and what is private to each.

Not seen here: imports by name at run time, and attributes that are reached through `getattr`. Includes of the
native code are tested by tests/native/test_includes.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def documented_rooms(text: str) -> list[str]:
    """Read the table of layers, top to bottom. A folder is a room, and so is a module beside the folders."""
    section = text.partition("## Layers")[2].partition("\n#")[0]
    places = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")]
    return [room for place in places for room in re.findall(r"`pyturbo/(\w+)(?:/|\.pyx?)`", place)]


#: From the top to the ground: a room imports from itself and from rooms below it.
ROOMS = documented_rooms((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name, `pyturbo` itself as `pyturbo.__init__`."""
    found = {}
    for path in sorted([*ROOT.glob("pyturbo/**/*.py"), *ROOT.glob("pyturbo/*.pyx")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)
        found[name] = path
    return found


def room(module: str) -> str:
    return module.split(".")[1]


@cache
def imports(module: str) -> frozenset[tuple[str, str]]:
    """What a module imports, anywhere in it: pairs of a module and a name in it, "" for the module itself."""
    path, pairs = modules()[module], []
    if path.suffix == ".pyx":
        for source, names in re.findall(
            r"^ *from (pyturbo[\w.]*) c?import ([\w, ]+)", path.read_text(), re.MULTILINE
        ):
            pairs += [(source, name.split(" as ")[0].strip()) for name in names.split(",")]
    else:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                pairs += [(name.name, "") for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: expected absolute imports"
                pairs += [(node.module or "", name.name) for name in node.names]
    return frozenset(_resolved(pairs))


def _resolved(pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for source, name in pairs:
        if source.split(".")[0] != "pyturbo":
            continue
        if f"{source}.{name}" in modules():
            yield f"{source}.{name}", ""
        elif source == "pyturbo":
            yield "pyturbo.__init__", name
        elif source in modules():
            yield source, name


def test_every_module_is_in_a_room() -> None:
    assert sorted({room(module) for module in modules()}) == sorted(ROOMS)


def test_there_is_no_circle_of_imports() -> None:
    graph = {module: {target for target, _ in imports(module)} - {module} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("module", modules())
def test_imports_go_down(module: str) -> None:
    for target, _ in imports(module):
        assert ROOMS.index(room(target)) >= ROOMS.index(room(module)), f"{module} imports {target}"


#: Folders within a room that know nothing of the others beside them.
APART = {"pyturbo.serve.openai": "pyturbo.serve.anthropic", "pyturbo.serve.anthropic": "pyturbo.serve.openai"}


@pytest.mark.parametrize("folder", APART)
def test_apis_know_nothing_of_each_other(folder: str) -> None:
    inside = [module for module in modules() if module.startswith(f"{folder}.")]
    assert inside
    for module in inside:
        assert not [target for target, _ in imports(module) if target.startswith(APART[folder])], module


#: Private by their spelling only, or without a public way in the standard library.
FOREIGN = {"_replace", "_fields", "_at_fork_reinit", "_actions"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in FOREIGN


@pytest.mark.parametrize("module", modules())
def test_private_modules_and_names_stay_in_their_folder(module: str) -> None:
    for target, name in imports(module):
        parts = [*target.split("."), *([name] if name else [])]
        for number, part in enumerate(parts):
            if is_private(part):
                folder = modules()[target].parent if number == len(target.split(".")) else None
                inside = ROOT.joinpath(*parts[:number]) if folder is None else folder
                assert modules()[module].is_relative_to(inside), f"{module} uses {'.'.join(parts)}"


#: Where a private name is defined or gets a value, also as one of several.
DEFINITIONS = (r"(?:def|class) (_\w+)", r"(?<!\w)(?=(_\w+)\b[^\n=(]*=[^=])", r"[.( ](_\w+): ")


@cache
def defined_in(folder: Path) -> set[str]:
    source = "\n".join(path.read_text() for path in [*folder.glob("*.py"), *folder.glob("*.pyx")])
    return {name for pattern in DEFINITIONS for name in re.findall(pattern, source)}


@pytest.mark.parametrize("module", [name for name, path in modules().items() if path.suffix == ".py"])
def test_private_attributes_are_used_where_they_are_defined(module: str) -> None:
    """An attribute `x._name` is assigned or defined in the same folder as its use."""
    path = modules()[module]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            assert node.attr in defined_in(path.parent), f"{path}: .{node.attr}"


@pytest.mark.parametrize("module", modules())
def test_no_class_derives_from_an_alias_of_numpy(module: str) -> None:
    """`NDArray` is an alias of types, and in NumPy 2.5 it cannot be a base."""
    path = modules()[module]
    if path.suffix == ".py":
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert not [node.name for node in classes for base in node.bases if "NDArray" in ast.unparse(base)]
