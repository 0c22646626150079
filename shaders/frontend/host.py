"""Writes the C++ header of a shader for host code: a struct of arguments for each of its kernels.

The struct of a kernel names its integer template parameters, its buffers and values and the function
constants it reaches, if they must have values, and reads them from a launch. Program-scope integers that the
contract names are constants of the struct. It is a template over the type parameters that arguments use. A
member is an untyped address where the host has no name for the type. Threadgroup memory is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import evaluate
from .arguments import Argument
from .emit import Entry, relative
from .host_types import host_type, is_integer
from .program import Program, ProgramScope

_READ = "::pyturbo::read::"


@dataclass
class Member:
    type: str
    name: str
    comment: str
    read: str  # its value, read from pt_info and pt_launch


def header(program: Program, entries: Sequence[Entry], library: str, root: Path) -> str:
    source = relative(program.unit.path, root)
    lines = [
        f"// Generated from {source} by shaders/frontend: the arguments of its kernels for host code.",
        "#pragma once",
        "",
        '#include "pyturbo/arguments.h"',
        "",
        f"namespace {library}::arguments {{",
        "using ::pyturbo::BFloat, ::pyturbo::Half;",
    ]
    for entry in entries:
        lines += ["", *_Struct(program, entry).lines()]
    return "\n".join([*lines, "", f"}}  // namespace {library}::arguments"]) + "\n"


class _Struct:
    """The struct of one kernel."""

    def __init__(self, program: Program, entry: Entry) -> None:
        self.program, self.entry = program, entry
        self.name = entry.kernel.name
        self.types = self._types()

    def _types(self) -> list[str]:
        """Return the type parameters that arguments use and that every instance sets to a host type."""
        used = {a.element for a in self._bound()}
        kernel, found = self.entry.kernel, []
        for number, parameter in enumerate(kernel.template):
            given = [host_type(self.program, i.arguments[number]) for i in kernel.instances]
            if parameter.type == "typename" and parameter.name in used and given and all(given):
                found.append(parameter.name)
        return found

    def lines(self) -> Iterator[str]:
        kernel, members = self.entry.kernel, self._members()
        if self.types:
            yield f"template <{', '.join(f'typename {name}' for name in self.types)}>"
        yield f"struct {self.name} {{"
        for member in members:
            comment = f"  // {member.comment}" if member.comment else ""
            yield f"  {member.type} {member.name};{comment}"
        yield from self._limits({member.name for member in members})
        yield from self._instances()
        yield f'  static constexpr const char* pt_function = "{self.name}";'
        yield "  // By template parameter: the element type of this struct, raw where any will do."
        yield f"  static constexpr ::pyturbo::DType pt_types[] = {{{', '.join(self._dtypes())}}};"
        yield f"  [[gnu::always_inline]] static inline {self.name} pt_read("
        yield "      [[maybe_unused]] const ::pyturbo::KernelInfo& pt_info,"
        yield "      [[maybe_unused]] const ::pyturbo::Arguments& pt_launch) {"
        yield f"    {self.name} pt_self;"
        yield from (f"    pt_self.{member.name} = {member.read};" for member in members)
        yield from ("    return pt_self;", "  }", "};")
        forms = dict.fromkeys(self.name + self._form(instance.arguments) for instance in kernel.instances)
        yield f"using {self.name}_forms = ::pyturbo::Forms<{', '.join(forms)}>;"

    def _limits(self, taken: set[str]) -> Iterator[str]:
        """Yield the program-scope integers that Requires and the shapes name."""
        contract, scope = self.entry.contract, ProgramScope(self.program)
        stated = [*contract.requires, *(extent for shape in contract.shapes.values() for extent in shape)]
        for name in dict.fromkeys(name for e in stated for _, name in evaluate.names(e.node)):
            value = scope.integer(name) if name in self.program.constants else None
            if value is not None and name not in taken:
                type_ = "uint32_t" if 0 <= value < 2**32 else "int64_t"
                yield f"  static constexpr {type_} {name} = {value};"

    def _instances(self) -> Iterator[str]:
        """Yield the values that instances set an integer template parameter to."""
        for number, parameter in enumerate(self.entry.kernel.template):
            if is_integer(self.program, parameter.type):
                type_ = host_type(self.program, parameter.type)
                given = [instance.arguments[number] for instance in self.entry.kernel.instances]
                values = dict.fromkeys(map(ProgramScope(self.program).integer, given))
                if values and None not in values:
                    yield f"  // Values of {parameter.name} in the instances of the kernel."
                    listed = ", ".join(map(str, values))
                    yield f"  static constexpr {type_} pt_{parameter.name}[] = {{{listed}}};"

    def _dtypes(self) -> list[str]:
        raw = "::pyturbo::DType::raw"
        names = [parameter.name for parameter in self.entry.kernel.template]
        return [f"::pyturbo::dtype_of<{name}>" if name in self.types else raw for name in names] or [raw]

    def _form(self, arguments: Sequence[str]) -> str:
        given = zip(self.entry.kernel.template, arguments)
        types = [host_type(self.program, text) for parameter, text in given if parameter.name in self.types]
        return f"<{', '.join(types)}>" if types else ""

    def _members(self) -> list[Member]:
        found = [*self._parameters(), *map(self._argument, self._bound())]
        taken = {member.name for member in found}
        for constant in self.entry.constants:
            type_ = host_type(self.program, constant.type)
            if type_ and constant.required and constant.name not in taken:  # an argument hides a constant
                read = f"{_READ}constant<{type_}>(pt_launch, {constant.slot})"
                found.append(Member(type_, constant.name, "function constant", read))
        return found

    def _bound(self) -> list[Argument]:
        return [a for a in self.entry.arguments if a.kind in ("buffer", "value")]

    def _parameters(self) -> Iterator[Member]:
        for number, parameter in enumerate(self.entry.kernel.template):
            if is_integer(self.program, parameter.type):
                type_ = host_type(self.program, parameter.type)
                read = f"{type_}(pt_info.parameters[{number}].value)"
                yield Member(type_, parameter.name, "template parameter", read)

    def _argument(self, argument: Argument) -> Member:
        known = argument.type.count("*") + argument.type.count("&") == 1
        element = argument.element if argument.element in self.types else ""
        element = (element or host_type(self.program, argument.element)) if known else ""
        slots = {constant.name: constant.slot for constant in self.entry.constants}
        if argument.kind == "value" and element:
            type_, absent, note = element, f"{element}{{}}", "0"
            read = f"{_READ}value<{element}>(pt_launch, {argument.index})"
        else:
            pointed = element or "void"
            const = "" if argument.writable else "const "
            type_, absent, note = f"{const}{pointed}*", "nullptr", "null"
            read = f"{_READ}buffer<{const}{pointed}>(pt_launch, {argument.index})"
        shape = self.entry.contract.shapes.get(argument.name)
        notes = [] if shape is None else [f"[{', '.join(extent.text for extent in shape)}]"]
        if not element:
            notes.append(argument.element)
        if argument.condition:
            condition = f"{_READ}constant<bool>(pt_launch, {slots[argument.condition]})"
            read = f"{condition} ? {read} : {absent}"
            notes.append(f"{note} without {argument.condition}")
        return Member(type_, argument.name, "; ".join(notes), read)
