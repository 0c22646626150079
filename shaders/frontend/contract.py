"""Reads the contract of a kernel: the comment above it, and the shapes after its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from . import evaluate
from .arguments import Argument
from .parse import Kernel, fields
from .program import Program
from .tokens import Errors, Line, Token, tokenise


@dataclass
class Expression:
    text: str
    tokens: list[Token]
    node: evaluate.Node
    where: Line


@dataclass
class Contract:
    comment: list[str] = field(default_factory=list)  # the lines that are prose
    groups: list[Expression] = field(default_factory=list)
    threads: list[Expression] = field(default_factory=list)
    requires: list[Expression] = field(default_factory=list)
    work: dict[str, Expression] = field(default_factory=dict)  # "products" and "bytes", where stated
    shapes: dict[str, list[Expression]] = field(default_factory=dict)  # by argument
    alignments: dict[str, int] = field(default_factory=dict)  # bytes, by argument; where stated

    def expressions(self) -> list[Expression]:
        shapes = [extent for shape in self.shapes.values() for extent in shape]
        return [*self.groups, *self.threads, *self.requires, *self.work.values(), *shapes]


@cache
def _source(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines()


def _comment_above(first: Token) -> list[Line]:
    lines, number = _source(first.file), first.line - 1
    while number >= 1 and lines[number - 1].lstrip().startswith("//"):
        number -= 1
    return [Line(first.file, n, lines[n - 1].strip()[2:]) for n in range(number + 1, first.line)]


def read(program: Program, kernel: Kernel, arguments: Sequence[Argument]) -> Contract:
    errors = program.unit.errors
    contract = Contract()
    seen: set[str] = set()
    for line in _joined(_comment_above(program.unit.tokens[kernel.item.begin])):
        keyword = re.match(r"(Dispatch|Requires|Work)\s*:", line.text.strip())
        if not keyword:
            contract.comment.append(line.text.strip())
            continue
        text = line.text.strip()[keyword.end() :].strip()
        if keyword[1] in seen:
            errors.add(line, f"{kernel.name}: expected one {keyword[1]} line, got another")
        elif keyword[1] == "Dispatch":
            _read_dispatch(contract, Line(line.file, line.number, text), errors)
        elif keyword[1] == "Work":
            _read_work(contract, Line(line.file, line.number, text), errors)
        else:
            parts = [part.strip() for part in text.rstrip(";").split(";")]
            contract.requires = _expressions(parts, line, "Requires", errors)
        seen.add(keyword[1])
    _read_shapes(contract, arguments, errors)
    _check_names(program, kernel, arguments, contract)
    return contract


def _joined(lines: Sequence[Line]) -> list[Line]:
    """Join to a line of Dispatch, Requires or Work the next lines that are indented by two more spaces."""
    joined: list[Line] = []
    indent = None
    for line in lines:
        own = len(line.text) - len(line.text.lstrip())
        if indent is not None and own >= indent + 2:
            joined[-1] = joined[-1]._replace(text=joined[-1].text + " " + line.text.strip())
            continue
        indent = own if line.text.strip().startswith(("Dispatch:", "Requires:", "Work:")) else None
        joined.append(line)
    return joined


def _read_dispatch(contract: Contract, line: Line, errors: Errors) -> None:
    match = re.fullmatch(r"groups\s*\((.*)\)\s*,\s*threads\s*\((.*)\)\s*\.?", line.text)
    if not match:
        errors.add(line, f"Dispatch: expected 'groups (...), threads (...)', got '{line.text}'")
        return
    for target, text in ((contract.groups, match[1]), (contract.threads, match[2])):
        target.extend(_expressions(_split(text), line, "Dispatch", errors))
        if len(target) > 3:
            errors.add(line, f"Dispatch: expected at most 3 axes, got '{text}'")


def _read_work(contract: Contract, line: Line, errors: Errors) -> None:
    for part in _split(line.text):
        match = re.fullmatch(r"(products|bytes)\s*\((.*)\)", part)
        if not match or match[1] in contract.work:
            errors.add(
                line, f"Work: expected 'products (...), bytes (...)' or one of them, got '{line.text}'"
            )
            return
        contract.work.update((match[1], found) for found in _expressions([match[2]], line, "Work", errors))


def _read_shapes(contract: Contract, arguments: Sequence[Argument], errors: Errors) -> None:
    last = {(a.last.file, a.last.line): a for a in arguments}  # a comment belongs to the last one of its line
    for argument in last.values():
        source = _source(argument.last.file)[argument.last.line - 1]
        comment = re.search(r"//\s*(\[.*)", source)
        if not comment or argument.kind not in ("buffer", "threadgroup"):
            continue
        line = Line(argument.last.file, argument.last.line, comment[1])
        closing = _closing(comment[1])
        if closing < 0:
            errors.add(line, f"{argument.name}: shape without a closing bracket: '{comment[1]}'")
            continue
        stated = re.match(r"\s*aligned (\d+)\b", comment[1][closing + 1 :])
        if stated and argument.kind == "buffer":
            contract.alignments[argument.name] = int(stated[1])
            if int(stated[1]) not in (2, 4, 8, 16):
                errors.add(line, f"{argument.name}: expected an alignment of 2, 4, 8 or 16, got {stated[1]}")
        shape = _split(comment[1][1:closing])
        contract.shapes[argument.name] = _expressions(shape, line, f"{argument.name}: shape", errors)


def _closing(text: str) -> int:
    depth = 0
    for i, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth == 0:
            return i
    return -1


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _expressions(texts: Sequence[str], line: Line, what: str, errors: Errors) -> list[Expression]:
    found = []
    for text in texts:
        tokens = tokenise([Line(line.file, line.number, text)])
        try:
            found.append(Expression(text, tokens, evaluate.parse(tokens), line))
        except evaluate.MalformedError as error:
            errors.add(line, f"{what}: '{text}' is not an expression: {error}")
    return found


def _check_names(program: Program, kernel: Kernel, arguments: Sequence[Argument], contract: Contract) -> None:
    values = {a.name: a for a in arguments if a.kind == "value"}
    known = {*values, *(p.name for p in kernel.template), *program.constants, "true", "false"}
    types = {*evaluate.TYPE_NAMES, *program.structs, *program.aliases, *(p.name for p in kernel.template)}
    for expression in contract.expressions():
        for kind, name in evaluate.names(expression.node):
            base, _, member = name.partition(".")
            struct = program.structs.get(values[base].element) if base in values else None
            if kind == "call":
                fine = name in evaluate.FUNCTIONS or name in types
            elif kind == "sizeof":
                fine = name in types or bool(re.fullmatch(r"(packed_)?[a-z]+[234]", name))
            elif member and struct:
                fine = member in dict(fields(program.unit, struct))
            else:
                fine = base.split("::")[-1] in known
            if not fine:
                message = f"{kernel.name}: unknown name '{name}' in '{expression.text}'"
                program.unit.errors.add(expression.where, message)
