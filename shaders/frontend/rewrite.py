"""Writes the shader as C++: replaces constructs that only Metal has, and leaves the rest on its line.

What differs between host and GPU is a macro, which msl/host/invoke.h and msl/cuda/invoke.h define.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from . import threadgroup
from .parse import Item, flatten, statements
from .program import Program
from .unit import Declarator, Range, Unit

_KEPT_ATTRIBUTES = frozenset(("maybe_unused", "nodiscard", "fallthrough", "likely", "unlikely"))
_LONGEST_GAP = 8  # lines left blank rather than stepped over by a #line

# A floating literal without suffix is a float in Metal; half and bfloat have suffixes of their own.
_LITERAL = re.compile(
    r"(?P<value>(?=[\d.]*[.eE])\d*\.?\d*(?:[eE][+-]?\d+)?|0[xX][\da-fA-F.]+[pP][+-]?\d+)(?P<suffix>|h|H|bf|BF)"
)
_LITERAL_TYPES = {"": "{}f", "h": "metal::half({}f)", "bf": "metal::bfloat({}f)"}

Edits = dict[int, tuple[int, str]]  # first token -> end of the tokens replaced, text


def rewrite(program: Program, marks: Mapping[int, str], name: Callable[[str], str] = str) -> list[str]:
    """Return the lines of the shader, with `marks` before tokens; `name` gives files their names in #line."""
    edits: Edits = {}
    _edit_words(program.unit, (0, len(program.unit.tokens)), edits)
    for item in flatten(program.items):
        if item.kind == "function" and item.body:
            _edit_uses(program, item, item.body, edits)
    for item in program.items:
        if item.kind == "variable":
            _edit_variable(program, item, edits)
        elif item.kind == "instantiation" and _names_kernel(program, item):
            edits[item.begin] = (item.end, "")
    for kernel in program.kernels.values():
        assert kernel.item.body is not None
        slot = 0
        for declared in threadgroup.declarations(program.unit, kernel.item.body):
            text = " ".join(_variable(v, slot + n) for n, v in enumerate(declared.variables))
            edits[declared.span[0]] = (declared.span[1], text)
            slot += len(declared.variables)
    return list(_lines(program.unit, edits, marks, name))


def line_marker(line: int, file: str) -> str:
    return '#line {} "{}"'.format(line, file.replace("\\", "\\\\"))


def _edit_words(unit: Unit, span: Range, edits: Edits) -> None:
    """Drop attributes, give literals their type, and turn `constant` into `const`, which C++ enforces too."""
    for i in range(*span):
        if unit.is_attribute(i):
            end = unit.match[i] + 1
            if any(attribute.name not in _KEPT_ATTRIBUTES for attribute in unit.attributes((i, end))):
                edits[i] = (end, "")
        elif unit.text(i) == "constant":
            edits[i] = (i + 1, "" if "const" in _run(unit, i) else "const")
        elif unit.tokens[i].kind == "number" and (literal := _LITERAL.fullmatch(unit.text(i))):
            edits[i] = (i + 1, _LITERAL_TYPES[literal["suffix"].lower()].format(literal["value"]))


def _run(unit: Unit, i: int) -> list[str]:
    """Return the names declared in one row with the name at i."""
    begin = end = i
    while unit.is_name(begin - 1):
        begin -= 1
    while unit.is_name(end):
        end += 1
    return [unit.text(k) for k in range(begin, end)]


def _edit_uses(program: Program, item: Item, body: Range, edits: Edits) -> None:
    """Make function constants objects; their uses name the type, so that templates see the value."""
    unit = program.unit
    spans = [*unit.split(item.params or body), *statements(unit, body)]
    own = {unit.text(d.name or 0) for span in spans for d in _declarators(unit, span)}
    for i in range(*body):
        constant = program.constants.get(unit.text(i))
        if constant is None or constant.name in own or not (constant.index >= 0 or constant.derived):
            continue
        if unit.text(i - 1) not in (".", "->", "::") and unit.text(i - 2) != "is_function_constant_defined":
            edits[i] = (i + 1, f"{constant.type}({constant.name})")


def _declarators(unit: Unit, span: Range) -> list[Declarator]:
    declaration = unit.declaration(span) or unit.declaration(span, unnamed=True)
    return declaration.declarators if declaration else []


def _names_kernel(program: Program, item: Item) -> bool:
    unit = program.unit
    return any(attribute.name == "host_name" for attribute in unit.attributes((item.head, item.end)))


def _edit_variable(program: Program, item: Item, edits: Edits) -> None:
    unit = program.unit
    declaration = unit.declaration((item.head, item.end))
    if declaration is None or all(unit.text(i) != "constant" for i in declaration.specifiers):
        return
    names = [unit.text(d.name) for d in declaration.declarators if d.name is not None]
    constants = [program.constants[name] for name in names if name in program.constants]
    if any(constant.index >= 0 or constant.derived for constant in constants):
        text = []
        for c in constants:
            kind = f"PYTURBO_CONSTANT({c.type}, {c.slot})"
            if c.index < 0:
                kind = f"pt_{c.name}"
                text.append(f"struct {kind} {{ operator {c.type}() const {{ return {c.value}; }} }};")
            text.append(f"[[maybe_unused]] static const {kind} {c.name}{{}};")
        edits[item.begin] = (item.end, " ".join(text))
    elif all(unit.text(i) not in ("static", "extern") for i in declaration.specifiers):
        end, word = edits.get(item.head, (item.head + 1, unit.text(item.head)))
        edits[item.head] = (end, f"[[maybe_unused]] static {word}")


def _variable(variable: threadgroup.Variable, slot: int) -> str:
    name, type_ = variable.name, f"pt_{variable.name}"
    return f"typedef {variable.type} {type_}{variable.dims}; PYTURBO_THREADGROUP({slot}, {type_}, {name});"


def _lines(unit: Unit, edits: Edits, marks: Mapping[int, str], name: Callable[[str], str]) -> Iterator[str]:
    text, file, line, i = "", "", 0, 0
    while i < len(unit.tokens):
        token = unit.tokens[i]
        if token.file != file or not line <= token.line <= line + _LONGEST_GAP:
            yield text.rstrip()
            yield line_marker(token.line, name(token.file))
            text, file, line = "", token.file, token.line
        while line < token.line:
            yield text.rstrip()
            text, line = "", line + 1
        mark = marks.get(i, "")
        i, replaced = edits.get(i, (i + 1, token.text))
        if mark or replaced:
            text += " " * token.space + mark + replaced
    yield text.rstrip()


def spelled(unit: Unit, span: Range) -> str:
    """Rewrite a span word by word, on one line."""
    edits: Edits = {}
    _edit_words(unit, span, edits)
    text, i = "", span[0]
    while i < span[1]:
        space = " " if unit.tokens[i].space or unit.tokens[i].line != unit.tokens[max(i - 1, 0)].line else ""
        i, replaced = edits.get(i, (i + 1, unit.text(i)))
        text += space + replaced if replaced else ""
    return text.strip()
