"""Refuses what Apple's compiler would refuse and a C++ compiler would not."""

from __future__ import annotations

from collections.abc import Iterable

from . import threadgroup
from .parse import Item, Kernel, flatten, statements
from .program import Program, is_kernel
from .tokens import Token, words
from .unit import ADDRESS_SPACES, Declaration, Unit

_KERNEL_ATTRIBUTES = words("kernel host_name max_total_threads_per_threadgroup maybe_unused")
_STARS = ("*", "&", "&&")


def check(program: Program) -> None:
    unit = program.unit
    if not unit.balanced:
        return
    for item in flatten(program.items):
        _check_pointers(unit, item)
        _check_threadgroup_scope(unit, item)
    _check_unnamed_pointers(unit)
    _check_lambdas(unit)
    for kernel in program.kernels.values():
        _check_kernel(program, kernel)


def _check_pointers(unit: Unit, item: Item) -> None:
    if item.kind in ("function", "variable") or unit.text(item.head) == "typedef":
        _check_declaration(unit, unit.declaration((item.head, item.end)))
    if item.kind == "function" and item.params:
        for parameter in unit.split(item.params):
            _check_declaration(unit, unit.declaration(parameter, unnamed=True))
    if item.kind == "function" and item.body:
        for begin, end in statements(unit, item.body):
            begin += unit.text(begin) == "typedef"
            _check_declaration(unit, unit.declaration((begin, end)))


def _check_declaration(unit: Unit, declaration: Declaration | None) -> None:
    """Require an address space for each "*" and "&"; a reference to a pointer is in thread memory."""
    if declaration is None or any(unit.text(i) == "auto" for i in declaration.specifiers):
        return
    for declarator in declaration.declarators:
        spaces = {unit.text(i) for i in declaration.specifiers}
        begin = declarator.stars[0] if declarator.stars else 0
        for star in declarator.stars if declarator.name is not None else ():
            spaces |= {unit.text(i) for i in range(begin, star)}
            to_pointer = star != declarator.stars[0] and unit.text(star) != "*"
            if not (spaces & ADDRESS_SPACES or to_pointer):
                _refuse_pointer(unit, star, unit.text(declarator.name or star))
            spaces, begin = set(), star


def _refuse_pointer(unit: Unit, star: int, name: str) -> None:
    what = "pointer" if unit.text(star) == "*" else "reference"
    quoted = f" '{name}'" if name else ""
    message = f"{what}{quoted} without an address space: expected device, constant, thread or threadgroup"
    unit.errors.add(unit.tokens[star], message)


def _check_unnamed_pointers(unit: Unit) -> None:
    """Check casts, template arguments, aliases and unnamed parameters: a "*" with no operand after it."""
    for i, token in enumerate(unit.tokens):
        if token.text not in _STARS or unit.text(i + 1) not in (")", ",", ">", ";"):
            continue
        names, j = set(), i - 1
        while unit.is_name(j) or unit.text(j) in ("::", ">"):
            if unit.text(j) == ">":
                j = _opening_angle(unit, j)
            names.add(unit.text(j))
            j -= 1
        if names and "operator" not in names and not names & (ADDRESS_SPACES | {"auto"}):
            _refuse_pointer(unit, i, "")


def _opening_angle(unit: Unit, i: int) -> int:
    depth = 0
    while i > 0:
        depth += {">": 1, "<": -1}.get(unit.text(i), 0)
        if depth == 0:
            return i
        i -= 1
    return 0


def _check_lambdas(unit: Unit) -> None:
    for i, token in enumerate(unit.tokens):
        after = unit.match.get(i, 0) + 1
        before = unit.text(i - 1)
        is_subscript = before in ("]", ")") or (unit.is_name(i - 1) and before != "return")
        if token.text != "[" or is_subscript or unit.is_attribute(i) or unit.text(after) != "(":
            continue
        for parameter in unit.split((after + 1, unit.match[after])):
            _check_declaration(unit, unit.declaration(parameter, unnamed=True))
        body = unit.find((unit.match[after], len(unit.tokens)), ("{",))
        for begin, end in statements(unit, (body + 1, unit.match.get(body, body + 1))):
            _check_declaration(unit, unit.declaration((begin, end)))


def _check_threadgroup_scope(unit: Unit, item: Item) -> None:
    if item.kind == "variable":
        declaration = unit.declaration((item.head, item.end))
        specifiers = [unit.text(i) for i in declaration.specifiers] if declaration else []
        if declaration and "threadgroup" in specifiers and not declaration.declarators[0].stars:
            _refuse_variable(unit.tokens[item.head], unit, "program or class scope")
    if item.kind != "function" or not item.body or is_kernel(unit, item):
        return
    for declared in threadgroup.declarations(unit, item.body):
        _refuse_variable(unit.tokens[declared.span[0]], unit, f"{item.name}, which is not a kernel")


def _refuse_variable(where: Token, unit: Unit, place: str) -> None:
    message = f"threadgroup variable declared in {place}: expected the body of a kernel"
    unit.errors.add(where, message)


def _check_kernel(program: Program, kernel: Kernel) -> None:
    unit, item = program.unit, kernel.item
    assert item.params is not None
    assert item.body is not None
    where = unit.tokens[item.head]
    for attribute in kernel.attributes:
        if attribute.name not in _KERNEL_ATTRIBUTES:
            unit.errors.add(attribute.where, f"{kernel.name}: unknown attribute '{attribute.name}'")
    returned = unit.declaration((item.head, item.params[0]))
    specifiers = [unit.text(i) for i in returned.specifiers] if returned else []
    if returned is None or "void" not in specifiers or returned.declarators[0].stars:
        unit.errors.add(where, f"{kernel.name}: expected a kernel that returns void")
    declared = threadgroup.declarations(unit, item.body)
    for statement in declared:
        for variable in statement.variables:
            if variable.initialised:
                message = f"threadgroup variable '{variable.name}' cannot have an initialiser"
                unit.errors.add(variable.where, message)
    for instance in kernel.instances:
        total = threadgroup.total(program, kernel, kernel.bindings(instance))
        if total is not None and total > threadgroup.LIMIT:
            message = f"expected at most {threadgroup.LIMIT} bytes of threadgroup memory, got {total}"
            unit.errors.add(declared[0].variables[0].where, f"{instance.host_name}: {message}")


def check_names(programs: Iterable[Program]) -> None:
    """Require names of kernel functions and host names to be unique in a library.

    Devices find kernels by their host names, and CPU bodies by the names of their functions.
    """
    functions: dict[str, Token] = {}
    taken: dict[str, Token] = {}
    for program in programs:
        for kernel in program.kernels.values():
            where = program.unit.tokens[kernel.item.begin]
            first = functions.setdefault(kernel.name, where)
            if first is not where:
                message = f"kernel function {kernel.name} is defined in {first.file}:{first.line} too"
                program.unit.errors.add(where, message)
            for instance in kernel.instances:
                other = taken.setdefault(instance.host_name, instance.where)
                if other is not instance.where:
                    message = f"host name {instance.host_name} is taken by {other.file}:{other.line}"
                    program.unit.errors.add(instance.where, message)
