"""Writes the manifest: everything the host and the documentation know about the kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import threadgroup
from .arguments import Argument
from .contract import Expression
from .emit import Entry, relative
from .parse import Instance, fields
from .program import Program, max_threads, substitute


def manifest(shaders: Sequence[tuple[Program, Sequence[Entry]]], root: Path) -> str:
    kernels = [
        _kernel(program, entry, instance, root)
        for program, entries in shaders
        for entry in entries
        for instance in entry.kernel.instances
    ]
    return json.dumps({"kernels": kernels}, separators=(",", ":")) + "\n"


def _kernel(program: Program, entry: Entry, instance: Instance, root: Path) -> dict[str, Any]:
    kernel, contract = entry.kernel, entry.contract
    where, bound = program.unit.tokens[kernel.item.begin], kernel.bindings(instance)
    dispatch = {"groups": _texts(contract.groups), "threads": _texts(contract.threads)}
    return {
        "name": instance.host_name,
        "function": kernel.name,
        "file": relative(where.file, root),
        "line": where.line,
        "comment": contract.comment,
        "contract": {
            "dispatch": dispatch if contract.groups else None,
            "requires": _texts(contract.requires),
            "work": {what: expression.text for what, expression in contract.work.items()} or None,
        },
        "template": bound,
        "arguments": [_argument(program, entry, a, bound) for a in entry.arguments if not a.is_position],
        "positions": [
            {"name": a.name, "type": a.type, "attribute": a.kind} for a in entry.arguments if a.is_position
        ],
        "constants": [
            {"name": c.name, "type": c.type, "index": c.index, "required": c.required}
            for c in entry.constants
        ],
        "threadgroup_bytes": threadgroup.total(program, kernel, bound),
        "max_threads": max_threads(program, kernel, bound),
    }


def _texts(expressions: Sequence[Expression]) -> list[str]:
    return [expression.text for expression in expressions]


def _argument(program: Program, entry: Entry, argument: Argument, bound: dict[str, str]) -> dict[str, Any]:
    shape = entry.contract.shapes.get(argument.name)
    found: dict[str, Any] = {
        "name": argument.name,
        "type": substitute(argument.type, bound),
        "kind": argument.kind,
        "index": argument.index,
        "access": "write" if argument.writable else "read",
        "shape": None if shape is None else _texts(shape),
        "alignment": entry.contract.alignments.get(argument.name),
        "condition": argument.condition or None,
    }
    struct = program.structs.get(substitute(argument.element, bound))
    if argument.kind == "value" and struct:
        found["fields"] = [{"name": name, "type": type_} for name, type_ in fields(program.unit, struct)]
    return found
