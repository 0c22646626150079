"""Marks statements with their file and line, so that the checker can name the one that is running.

PYTURBO_AT stands in front of expressions and declarations and says nothing in the reference build. A function
of one statement belongs to the statement that calls it; others give back what they found when they return.
"""

from __future__ import annotations

from collections.abc import Iterator

from .parse import Item, flatten, statements
from .program import Program
from .tokens import words
from .unit import QUALIFIERS, Range, Unit

_UNMARKED = words(
    "{ } ; [ else do if while switch case default break continue goto using typedef static_assert struct"
    " class union enum asm try template public private protected"
)
_BLOCK = words("{ } ;")  # in front of a statement that another one may stand before
_CONSTANT = words("constexpr consteval")
_COUNTING = words("++ -- += -= 1 2 4 8 16 32 ,")  # in the step of a loop that reads no memory


def files(unit: Unit) -> list[str]:
    """Return the files of a unit; markers name them by number."""
    return list(dict.fromkeys(token.file for token in unit.tokens))


def markers(program: Program) -> dict[int, str]:
    """Return the text to write before tokens, by index."""
    unit, found = program.unit, dict[int, str]()
    numbers = {file: number for number, file in enumerate(files(unit))}
    kernels = [kernel.item for kernel in program.kernels.values()]
    for item in flatten(program.items):
        if item.kind != "function" or item.body is None or _is_constant(unit, item):
            continue
        marked = list(_marked(unit, item.body))
        if len(marked) < 2 and item not in kernels:
            continue
        for at, separator in marked:
            token = unit.tokens[at]
            found[at] = f"PYTURBO_AT({numbers[token.file]}, {token.line}){separator} "
        if item not in kernels:
            found[item.body[0]] = "PYTURBO_FRAME; " + found.get(item.body[0], "")
    return found


def _is_constant(unit: Unit, item: Item) -> bool:
    assert item.body is not None
    return any(unit.text(i) in _CONSTANT for i in range(item.head, item.body[0]))


def _marked(unit: Unit, body: Range) -> Iterator[tuple[int, str]]:
    """Yield the tokens that need a marker before them, with the text that separates the two."""
    conditions = {}  # marked ones, by the position of their closing parenthesis
    for i, end in statements(unit, body):
        text, before = unit.text(i), unit.text(i - 1)
        if before == "(":
            condition, step = _head(unit, i, end)
            if condition is not None:
                conditions[end] = unit.tokens[condition].line
                yield condition, ","
            if step is not None:
                yield step, ","
        elif conditions.get(i - 1) == unit.tokens[i].line:
            continue  # the condition on the same line has just run
        elif text == "return":
            if unit.text(i + 1) not in (";", "{"):
                yield i + 1, ","
        elif text == "for" or _declares(unit, i, end):
            if before in _BLOCK:
                yield i, ";"
        elif text not in _UNMARKED and unit.text(i + 1) != ":":
            yield i, ","


def _head(unit: Unit, i: int, end: int) -> tuple[int | None, int | None]:
    """Yield the condition and the step after `for`, `if`, `while` or `switch` that need a marker."""
    keyword, first = unit.text(i - 2), unit.find((i, end), (";",))
    if keyword == "for" and first < end:
        second = unit.find((first + 1, end), (";",))
        counts = all(unit.is_name(k) or unit.text(k) in _COUNTING for k in range(second + 1, end))
        return (first + 1 if first + 1 < second else None), (None if counts else second + 1)
    if keyword not in ("if", "while", "switch") or first < end or _declares(unit, i, end):
        return None, None
    return i, None


def _declares(unit: Unit, i: int, end: int) -> bool:
    return unit.text(i) in QUALIFIERS or unit.text(i) == "auto" or unit.declaration((i, end)) is not None
