"""Writes the Work lines of contracts as C++ functions: one for each kernel, for all its instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import evaluate
from .contract import Expression
from .emit import Entry
from .host_types import host_type, is_integer
from .program import Program, ProgramScope
from .tokens import Token, spell

_READ = "::pyturbo::read::"


def functions(shaders: Sequence[tuple[Program, Sequence[Entry]]]) -> dict[str, list[str]]:
    """Return the lines of `Work work_of_<kernel>(const KernelInfo&, const Arguments&)` by kernel."""
    return {
        entry.kernel.name: [*_function(program, entry)]
        for program, entries in shaders
        for entry in entries
        if entry.contract.work
    }


def _function(program: Program, entry: Entry) -> Iterator[str]:
    work = entry.contract.work
    yield f"Work work_of_{entry.kernel.name}("
    yield "    [[maybe_unused]] const KernelInfo& pt_info, [[maybe_unused]] const Arguments& pt_launch) {"
    used = dict.fromkeys(name for part in work.values() for _, name in evaluate.names(part.node))
    for name in used:
        value = _value(program, entry, name)
        if value:
            yield f"  const int64_t {name} = {value};"
        elif not _is_known(entry, name):
            where = next(iter(work.values())).where
            program.unit.errors.add(where, f"{entry.kernel.name}: Work: expected integers, got '{name}'")
    products = _spelled(entry, work["products"]) if "products" in work else "0"
    nbytes = _spelled(entry, work["bytes"]) if "bytes" in work else "argument_bytes(pt_info, pt_launch)"
    yield f"  return {{double({products}), double({nbytes})}};"
    yield "}"


def _value(program: Program, entry: Entry, name: str) -> str:
    """Return what reads an integer of the launch, of the instance or of the program; "" for anything else."""
    for argument in entry.arguments:
        if argument.name == name and argument.kind == "value" and is_integer(program, argument.element):
            return f"{_READ}value<{host_type(program, argument.element)}>(pt_launch, {argument.index})"
    for number, parameter in enumerate(entry.kernel.template):
        if parameter.name == name and is_integer(program, parameter.type):
            return f"pt_info.parameters[{number}].value"
    for constant in entry.constants:
        if constant.name == name and is_integer(program, constant.type):
            return f"{_READ}constant<{host_type(program, constant.type)}>(pt_launch, {constant.slot})"
    value = ProgramScope(program).integer(name)
    return "" if value is None else str(value)


def _is_known(entry: Entry, name: str) -> bool:
    return name in evaluate.FUNCTIONS or name in evaluate.TYPE_NAMES or name in _types(entry)


def _types(entry: Entry) -> dict[str, int]:
    return {p.name: number for number, p in enumerate(entry.kernel.template) if p.type == "typename"}


def _spelled(entry: Entry, expression: Expression) -> str:
    """Write the expression in C++, with the bytes of types that differ between instances."""
    types, out = _types(entry), list[Token]()
    for token in expression.tokens:
        if len(out) > 1 and out[-2].text == "sizeof" and token.text in types:
            out[-2] = out[-2]._replace(text="bytes_of")
            token = token._replace(text=f"pt_info.parameters[{types[token.text]}].type")
        out.append(token)
    return spell(out)
