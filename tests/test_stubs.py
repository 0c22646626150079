"""The stubs of compiled modules name what is there, with the arguments it takes.

Constructors are left out: what a compiled class takes for its making cannot be asked.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import pytest

import pyturbo

STUBS = sorted(Path(pyturbo.__path__[0]).glob("*.pyi"))


def public(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    named = [*given.posonlyargs, *given.args, *([given.vararg] if given.vararg else []), *given.kwonlyargs]
    return [argument.arg for argument in [*named, *([given.kwarg] if given.kwarg else [])]]


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.name)
def test_a_stub_describes_its_module(stub: Path) -> None:
    module = importlib.import_module(f"pyturbo.{stub.stem}")
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(module, node.name)).parameters)
        if isinstance(node, ast.ClassDef):
            check_class(node, getattr(module, node.name))


def check_class(node: ast.ClassDef, cls: type) -> None:
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    fields = {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
    assert public(methods) | fields == public(vars(cls)), cls
    for name in public(methods):
        member = vars(cls)[name]
        marks = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in methods[name].decorator_list}
        is_property = bool(marks & {"property", "setter"})
        assert is_property == inspect.isdatadescriptor(member), name
        if not is_property:
            assert parameters(methods[name]) == list(inspect.signature(member).parameters), name
