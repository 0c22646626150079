"""Declarations of a shader: kernels with their instances, program-scope constants, structs and aliases."""

from __future__ import annotations

import re
from collections.abc import Mapping

from . import evaluate
from .parse import Constant, Instance, Item, Kernel, Parser, template_parameters
from .tokens import Line, tokenise
from .unit import QUALIFIERS, Range, Unit

_MAX_INDEX = 65535  # of a function constant, as Metal has it
MAX_CONSTANTS = 64  # pyturbo::kMaxConstants


class Program:
    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.items = list(Parser(unit).items((0, len(unit.tokens)))) if unit.balanced else []
        self.kernels: dict[str, Kernel] = {}
        self.constants: dict[str, Constant] = {}
        self.structs: dict[str, Item] = {}
        self.aliases: dict[str, str] = {}
        self.optional: set[str] = set()  # asked is_function_constant_defined() of
        for i, token in enumerate(unit.tokens):
            if token.text == "is_function_constant_defined":
                self.optional.add(unit.text(i + 2))
        for item in self.items:
            self._add(item)
        for item in self.items:
            if item.kind == "instantiation":
                self._instantiate(item)

    def _add(self, item: Item) -> None:
        if item.kind == "function" and item.body and is_kernel(self.unit, item):
            self._add_kernel(item)
        elif item.kind == "type" and item.body and item.template is None:
            self.structs[item.name] = item
            if "enum" in (self.unit.text(i) for i in range(item.head, item.body[0])):
                self._add_enumerators(item.body)
        elif item.kind == "alias" and item.template is None:
            self.aliases.update(alias(self.unit, (item.head, item.end - 1)))
        elif item.kind == "variable":
            self._add_constants(item)

    def _add_kernel(self, item: Item) -> None:
        unit = self.unit
        assert item.params is not None
        assert item.body is not None
        if item.name in self.kernels:
            message = f"{item.name}: expected one kernel of this name, got another"
            unit.errors.add(unit.tokens[item.head], message)
            return
        attributes = [
            *unit.attributes((item.head, item.params[0] - 1)),
            *unit.attributes((item.params[1] + 1, item.body[0] - 1)),
        ]
        kernel = Kernel(item, template_parameters(unit, item.template), attributes, unit.split(item.params))
        self.kernels[item.name] = kernel
        if item.template is None:
            named = [unit.text(a.arguments[0])[1:-1] for a in attributes if a.name == "host_name"]
            kernel.instances.append(Instance(named[0] if named else item.name, [], unit.tokens[item.begin]))

    def _add_enumerators(self, body: Range) -> None:
        previous = ""
        for begin, end in self.unit.split(body):
            if begin < end:
                name = self.unit.text(begin)
                implied = f"{previous} + 1" if previous else "0"
                value = self.unit.spell((begin + 2, end)) if end > begin + 2 else implied
                self.constants[name] = Constant(name, "int", value)
                previous = name

    def _add_constants(self, item: Item) -> None:
        unit = self.unit
        declaration = unit.declaration((item.head, item.end))
        if declaration is None or item.template is not None:
            return
        specifiers = [unit.text(i) for i in declaration.specifiers]
        type_ = " ".join(word for word in specifiers if word not in QUALIFIERS)
        index = -1
        for attribute in unit.attributes((item.begin, item.end)):
            if attribute.name == "function_constant":
                value = ProgramScope(self).integer(unit.spell(attribute.arguments))
                index = value if value is not None and 0 <= value <= _MAX_INDEX else -1
                if index < 0:
                    message = f"function_constant: expected an index from 0 to {_MAX_INDEX}"
                    unit.errors.add(attribute.where, message)
        for declarator in declaration.declarators:
            if declarator.name is None or declarator.stars:
                continue
            name, (begin, end) = unit.text(declarator.name), declarator.init
            init = (begin + 1, end) if unit.text(begin) == "=" else (begin, end)
            derived = index < 0 and any(self._depends(unit.text(i)) for i in range(*init))
            required = name not in self.optional
            slot = sum(constant.slot >= 0 for constant in self.constants.values()) if index >= 0 else -1
            if slot >= MAX_CONSTANTS:
                unit.errors.add(
                    unit.tokens[item.head], f"expected at most {MAX_CONSTANTS} function constants"
                )
            self.constants[name] = Constant(name, type_, unit.spell(init), index, slot, derived, required)

    def _depends(self, name: str) -> bool:
        constant = self.constants.get(name)
        return constant is not None and (constant.index >= 0 or constant.derived)

    def _instantiate(self, item: Item) -> None:
        unit = self.unit
        names = [a for a in unit.attributes((item.head + 1, item.end)) if a.name == "host_name"]
        i, begin, end = item.head + 1, 0, 0
        while unit.text(i) not in ("(", ";", ""):
            if unit.is_attribute(i):
                i = unit.match[i] + 1
            elif unit.is_name(i):
                begin, end = i, unit.qualified(i)
                i = end
            else:
                i += 1
        angles = (k for k in range(begin, end) if unit.text(k) == "<" and unit.angle(k) == end - 1)
        opening = next(angles, end)
        kernel = self.kernels.get(unit.text(opening - 1))
        where = unit.tokens[item.begin]
        if kernel is None or kernel.item.template is None:
            if names:
                unit.errors.add(where, f"instantiation of unknown kernel template {unit.text(opening - 1)}")
            return
        if not names:
            unit.errors.add(where, f"{kernel.name}: instantiation without host_name")
            return
        given = [unit.spell(part) for part in unit.split((opening + 1, end - 1))] if opening < end else []
        instance = Instance(unit.text(names[0].arguments[0])[1:-1], given.copy(), where)
        for parameter in kernel.template[len(given) :]:
            instance.arguments.append(substitute(parameter.default, kernel.bindings(instance)))
        if "" in instance.arguments or len(given) > len(kernel.template):
            expected = len(kernel.template)
            unit.errors.add(where, f"{kernel.name}: expected {expected} template arguments, got {len(given)}")
        else:
            kernel.instances.append(instance)

    def closure(self, kernel: Kernel) -> set[str]:
        """Return every name that the kernel can reach through the functions and constants of the shader."""
        uses: dict[str, set[str]] = {}
        for item in self.items:
            if item.kind in ("function", "type"):
                uses.setdefault(item.name, set()).update(self._names((item.begin, item.end)))
        for constant in self.constants.values():
            uses.setdefault(constant.name, set()).update(re.findall(r"[A-Za-z_]\w*", constant.value))
        reached: set[str] = set()
        pending = self._names((kernel.item.begin, kernel.item.end))
        while pending:
            reached |= pending
            pending = {name for used in pending for name in uses.get(used, ())} - reached
        return reached

    def _names(self, span: Range) -> set[str]:
        return {token.text for token in self.unit.tokens[span[0] : span[1]] if token.kind == "id"}


def is_kernel(unit: Unit, item: Item) -> bool:
    assert item.params
    head = (item.head, item.params[0] - 1)
    attributes = {attribute.name for attribute in unit.attributes(head)}
    return "kernel" in attributes or unit.find(head, ("kernel",)) < head[1]


def substitute(text: str, bound: Mapping[str, str]) -> str:
    """Replace template parameters by their arguments."""
    return re.sub(r"[A-Za-z_]\w*", lambda name: bound.get(name[0], name[0]), text)


def alias(unit: Unit, span: Range) -> dict[str, str]:
    """Read name and type of the `using` or `typedef` in the span, which ends before the semicolon."""
    begin, end = span
    if unit.text(begin) == "using" and unit.text(begin + 2) == "=":
        return {unit.text(begin + 1): unit.spell((begin + 3, end))}
    return {unit.text(end - 1): unit.spell((begin + 1, end - 1))} if unit.text(begin) == "typedef" else {}


class ProgramScope:
    """Values and types by name: template arguments first, then the kernel's own, then the program's."""

    def __init__(self, program: Program, bound: Mapping[str, str] | None = None) -> None:
        self.program = program
        self.bound = dict(bound or {})
        self.values: dict[str, str] = {}
        self.aliases: dict[str, str] = {}

    def value(self, name: str) -> int:
        if name in ("true", "false"):
            return int(name == "true")
        if name in self.bound:
            return ProgramScope(self.program).evaluate(self.bound[name])
        constant = self.program.constants.get(name.split("::")[-1])
        text = self.values.get(name) or (constant.value if constant else "")
        if not text:
            raise evaluate.UnknownError(name)
        return self.evaluate(text)

    def type(self, name: str) -> str:
        found = self.bound.get(name) or self.aliases.get(name) or self.program.aliases.get(name)
        if found is None or found == name:
            raise evaluate.UnknownError(name)
        return found

    def evaluate(self, text: str) -> int:
        try:
            return evaluate.evaluate(evaluate.parse(tokenise([Line("", 0, text)])), self)
        except (evaluate.MalformedError, RecursionError) as error:
            raise evaluate.UnknownError(text) from error

    def integer(self, text: str) -> int | None:
        """Return the value of a constant expression, None when it is not known here."""
        try:
            return self.evaluate(text)
        except evaluate.UnknownError:
            return None


def max_threads(program: Program, kernel: Kernel, bound: Mapping[str, str]) -> int | None:
    """Return the value of [[max_total_threads_per_threadgroup]] for the instance."""
    for attribute in kernel.attributes:
        if attribute.name == "max_total_threads_per_threadgroup":
            return ProgramScope(program, bound).integer(program.unit.spell(attribute.arguments))
    return None
