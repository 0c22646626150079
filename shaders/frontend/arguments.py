"""Reads the parameters of a kernel and their bindings, and refuses those that Metal would refuse."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .parse import Kernel
from .program import Program, ProgramScope
from .tokens import Token, words
from .unit import ADDRESS_SPACES, Attribute, Range

GRID_POSITIONS = words(
    "thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid threads_per_grid"
    " threads_per_threadgroup dispatch_threads_per_threadgroup threadgroups_per_grid"
)
INDICES = words(
    "thread_index_in_threadgroup thread_index_in_simdgroup thread_index_in_quadgroup"
    " simdgroup_index_in_threadgroup quadgroup_index_in_threadgroup simdgroups_per_threadgroup"
    " dispatch_simdgroups_per_threadgroup quadgroups_per_threadgroup dispatch_quadgroups_per_threadgroup"
    " threads_per_simdgroup thread_execution_width"
)
_POSITION_TYPE = re.compile(r"uint|ushort|uint32_t|uint16_t|unsigned(?: int| short)?|(?:uint|ushort)([23])")
_HARMLESS = frozenset(("maybe_unused", "unused"))
MAX_BUFFERS = 31  # pyturbo::kMaxArguments


@dataclass
class Argument:
    name: str
    type: str  # as written
    kind: str  # "buffer", "value", "threadgroup" or the name of a position attribute
    index: int
    writable: bool
    condition: str  # function constant that makes it exist, or ""
    where: Token
    last: Token  # the comment after it holds its shape

    @property
    def is_position(self) -> bool:
        return self.kind in GRID_POSITIONS or self.kind in INDICES

    @property
    def element(self) -> str:
        """Return the type without address space, qualifiers and pointer."""
        dropped = ADDRESS_SPACES | {"const", "struct"}
        return " ".join(word for word in re.sub(r"[*&]", " ", self.type).split() if word not in dropped)

    @property
    def width(self) -> str:
        """Return the number of components of a position, "" for a scalar."""
        match = _POSITION_TYPE.fullmatch(self.element)
        return (match[1] or "") if match else ""


class Reader:
    """Reads the parameters of one kernel in order; mistakes go to the unit's errors."""

    def __init__(self, program: Program, kernel: Kernel) -> None:
        self.program, self.unit, self.kernel = program, program.unit, kernel
        self.arguments: list[Argument] = []

    def read(self) -> list[Argument]:
        for span in self.kernel.parameters:
            argument = self._parameter(span)
            if argument:
                self.arguments.append(argument)
        for kind in ("buffer", "threadgroup"):
            self._number(kind)
        self._widths()
        return self.arguments

    def _parameter(self, span: Range) -> Argument | None:
        unit = self.unit
        where, declaration = unit.tokens[span[0]], unit.declaration(span, unnamed=True)
        if declaration is None:
            unit.errors.add(where, f"{self.kernel.name}: cannot read parameter '{unit.spell(span)}'")
            return None
        declarator = declaration.declarators[0]
        number = len(self.arguments)
        name = f"unnamed_{number}" if declarator.name is None else unit.text(declarator.name)
        specifiers = [unit.text(i) for i in declaration.specifiers]
        stop = declarator.stars[-1] + 1 if declarator.stars else declaration.specifiers[-1] + 1
        type_ = re.sub(r"\s*([*&]+)", r"\1", unit.spell((declaration.specifiers[0], stop)))
        argument = Argument(
            name, type_, "", -1, "const" not in specifiers, "", where, unit.tokens[span[1] - 1]
        )
        for attribute in unit.attributes(span):
            self._attribute(argument, attribute)
        spaces = [word for word in specifiers if word in ADDRESS_SPACES]
        is_array = declarator.dims[0] < declarator.dims[1]
        is_reference = bool(declarator.stars) and unit.text(declarator.stars[-1]) == "&"
        argument.type += "*" if is_array else ""
        inferred = self._infer(spaces[0] if spaces else "", is_array or bool(declarator.stars), is_reference)
        if argument.is_position:
            self._position(argument)
        elif not inferred or (argument.kind and argument.kind != inferred.replace("value", "buffer")):
            expected = argument.kind or "an attribute, or a pointer to device, constant or threadgroup"
            unit.errors.add(where, f"{name}: expected {expected} memory, got '{type_}'")
            return None
        else:
            argument.kind = inferred
            argument.writable = inferred == "threadgroup" or (spaces[0] == "device" and argument.writable)
        return argument

    @staticmethod
    def _infer(space: str, is_pointer: bool, is_reference: bool) -> str:
        if not is_pointer or space not in ("device", "constant", "threadgroup"):
            return ""
        if space == "constant" and is_reference:
            return "value"
        return "threadgroup" if space == "threadgroup" else "buffer"

    def _attribute(self, argument: Argument, attribute: Attribute) -> None:
        name, text = attribute.name, self.unit.spell(attribute.arguments)
        if name in ("buffer", "threadgroup"):
            index = ProgramScope(self.program).integer(text)
            if index is None or not 0 <= index < MAX_BUFFERS:
                expected = f"expected a {name} index from 0 to {MAX_BUFFERS - 1}"
                self.unit.errors.add(attribute.where, f"{argument.name}: {expected}, got '{text}'")
            argument.kind, argument.index = name, -2 if index is None else index
        elif name == "function_constant":
            constant = self.program.constants.get(text)
            if constant is None or constant.index < 0 or constant.type != "bool":
                message = f"{argument.name}: expected a bool function constant, got '{text}'"
                self.unit.errors.add(attribute.where, message)
            else:
                argument.condition = text
        elif name in GRID_POSITIONS or name in INDICES:
            argument.kind = name
        elif name not in _HARMLESS:
            self.unit.errors.add(attribute.where, f"{argument.name}: unknown attribute '{name}'")

    def _position(self, argument: Argument) -> None:
        is_index = argument.kind in INDICES
        if not _POSITION_TYPE.fullmatch(argument.element) or (argument.width and is_index):
            expected = "uint or ushort" + ("" if is_index else ", or a vector of 2 or 3 of them")
            message = f"{argument.name}: {argument.kind} expected {expected}, got '{argument.type}'"
            self.unit.errors.add(argument.where, message)

    def _number(self, kind: str) -> None:
        """Check the given indices; assign the next free one to the others, as Metal does."""
        bound = [a for a in self.arguments if a.kind == kind or (kind == "buffer" and a.kind == "value")]
        if len(bound) > MAX_BUFFERS:
            message = f"expected at most {MAX_BUFFERS} {kind} arguments, got {len(bound)}"
            self.unit.errors.add(bound[MAX_BUFFERS].where, f"{self.kernel.name}: {message}")
        taken: dict[int, str] = {}
        for argument in bound:
            if argument.index in taken and argument.index >= 0:
                message = f"{kind} index {argument.index} is taken by {taken[argument.index]}"
                self.unit.errors.add(argument.where, f"{argument.name}: {message}")
            taken.setdefault(argument.index, argument.name)
        free = (index for index in range(len(bound) + MAX_BUFFERS) if index not in taken)
        for argument in bound:
            argument.index = next(free) if argument.index == -1 else argument.index

    def _widths(self) -> None:
        first: Argument | None = None
        for argument in self.arguments:
            if argument.kind not in GRID_POSITIONS:
                continue
            first = first or argument
            if argument.width != first.width:
                message = f"'{argument.type}' differs in width from {first.name}, '{first.type}'"
                self.unit.errors.add(argument.where, f"{argument.name}: {message}")
