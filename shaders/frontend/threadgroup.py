"""Finds threadgroup memory declared inside functions, and measures it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from . import evaluate
from .parse import Kernel, statements
from .program import Program, ProgramScope, alias
from .tokens import Token, spell
from .unit import Range, Unit

LIMIT = 32768  # bytes; pyturbo::kMaxThreadgroupBytes


@dataclass
class Variable:
    name: str
    type: str
    dims: str
    initialised: bool
    where: Token


@dataclass
class Declared:
    """One statement that declares threadgroup variables."""

    span: Range  # its semicolon included
    variables: list[Variable]


@cache
def declarations(unit: Unit, body: Range) -> list[Declared]:
    found = []
    for begin, end in statements(unit, body):
        declaration = unit.declaration((begin, end))
        if declaration is None or all(unit.text(i) != "threadgroup" for i in declaration.specifiers):
            continue
        dropped = ("threadgroup", "static")
        type_ = spell(unit.tokens[i] for i in declaration.specifiers if unit.text(i) not in dropped)
        variables = [
            Variable(unit.text(d.name), type_, unit.spell(d.dims), d.init[0] < d.init[1], unit.tokens[d.name])
            for d in declaration.declarators
            if d.name is not None and not d.stars
        ]
        if variables:
            found.append(Declared((begin, unit.find((begin, end), (";",)) + 1), variables))
    return found


@cache
def prerequisites(unit: Unit, body: Range) -> list[Range]:
    """Return the statements that define names which threadgroup variables are declared with."""
    declared = declarations(unit, body)
    needed = {unit.text(i) for d in declared for i in range(*d.span)}
    last = max((d.span[0] for d in declared), default=body[0])
    found: list[Range] = []
    for begin, end in reversed(list(statements(unit, body))):
        span = (begin, unit.find((begin, end), (";",)) + 1)
        if begin < last and needed & _defined(unit, span):
            found.insert(0, span)
            needed |= {unit.text(i) for i in range(*span)}
    return found


def _defined(unit: Unit, span: Range) -> set[str]:
    names = set(alias(unit, (span[0], span[1] - 1)))
    declaration = unit.declaration(span)
    if declaration and {"const", "constexpr"} & {unit.text(i) for i in declaration.specifiers}:
        names |= {unit.text(d.name) for d in declaration.declarators if d.name is not None and not d.stars}
    return names


def total(program: Program, kernel: Kernel, bound: dict[str, str]) -> int | None:
    """Return the bytes of an instance's threadgroup variables, None when only the compiler can tell."""
    unit, body = program.unit, kernel.item.body
    assert body is not None
    scope = ProgramScope(program, bound)
    for begin, end in prerequisites(unit, body):
        scope.aliases.update(alias(unit, (begin, end - 1)))
        declaration = unit.declaration((begin, end))
        for d in declaration.declarators if declaration else []:
            if d.name is not None and unit.text(d.init[0]) == "=":
                scope.values[unit.text(d.name)] = unit.spell((d.init[0] + 1, d.init[1]))
    try:
        return sum(_size(variable, scope) for d in declarations(unit, body) for variable in d.variables)
    except evaluate.UnknownError:
        return None


def _size(variable: Variable, scope: ProgramScope) -> int:
    size = evaluate.size_of(variable.type, scope)
    for bound in re.findall(r"\[([^\[\]]*)\]", variable.dims):
        size *= scope.evaluate(bound)
    return size
