"""Integer expressions of the shader and of its contracts: parsed always, evaluated where that is possible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .tokens import Token, spell, words

_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %")
_SCALARS = {
    **dict.fromkeys(words("bool char uchar int8_t uint8_t"), 1),
    **dict.fromkeys(words("short ushort int16_t uint16_t half bfloat"), 2),
    **dict.fromkeys(words("int uint unsigned int32_t uint32_t float"), 4),
    **dict.fromkeys(words("long ulong int64_t uint64_t size_t ptrdiff_t"), 8),
}
TYPE_NAMES = frozenset(_SCALARS)
FUNCTIONS = frozenset(("ceil_div", "min", "max"))


class UnknownError(Exception):
    """The value depends on something only the compiler or the launch knows."""


class MalformedError(Exception):
    """Not an expression."""


@dataclass(frozen=True)
class Node:
    kind: str  # "number", "name", "call", "sizeof", "unary", "binary" or "select"
    text: str  # literal, name, function, type or operator
    parts: tuple[Node, ...] = ()


def parse(tokens: Sequence[Token]) -> Node:
    reader = _Reader(tokens)
    node = reader.select()
    if reader.at < len(tokens):
        raise MalformedError(f"unexpected '{tokens[reader.at].text}'")
    return node


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead].text if self.at + ahead < len(self.tokens) else ""

    def take(self, text: str = "") -> str:
        found = self.peek()
        if not found or (text and found != text):
            raise MalformedError(f"expected '{text or 'a value'}', got '{found or 'the end'}'")
        self.at += 1
        return found

    def select(self) -> Node:
        node = self.binary(0)
        if self.peek() != "?":
            return node
        self.take()
        chosen = self.select()
        self.take(":")
        return Node("select", "?", (node, chosen, self.select()))

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        node = self.binary(level + 1)
        while self.operator() in _LEVELS[level].split():
            operator = self.operator()
            self.at += 2 if operator == ">>" else 1
            node = Node("binary", operator, (node, self.binary(level + 1)))
        return node

    def operator(self) -> str:
        double = self.peek() == ">" and self.peek(1) == ">" and not self.tokens[self.at + 1].space
        return ">>" if double else self.peek()

    def unary(self) -> Node:
        if self.peek() in ("-", "+", "!", "~"):
            return Node("unary", self.take(), (self.unary(),))
        if self.peek() == "(":
            cast = self.peek(1) in TYPE_NAMES and self.peek(2) == ")"
            self.take()
            if cast:
                self.at += 2
                return self.unary()
            node = self.select()
            self.take(")")
            return node
        if self.peek() == "sizeof":
            self.at += 1
            return Node("sizeof", spell(self.enclosed("(", ")")))
        return self.primary()

    def enclosed(self, opening: str, closing: str) -> Sequence[Token]:
        self.take(opening)
        begin, depth = self.at, 1
        while depth:
            depth += {opening: 1, closing: -1}.get(self.take(), 0)
        return self.tokens[begin : self.at - 1]

    def primary(self) -> Node:
        kind = self.tokens[self.at].kind if self.at < len(self.tokens) else ""
        text = self.take()
        if kind == "number":
            return Node("number", text)
        if kind != "id":
            raise MalformedError(f"unexpected '{text}'")
        while self.peek() in (".", "::") and self.at + 1 < len(self.tokens):
            text += self.take() + self.take()
        if text == "static_cast":
            text = spell(self.enclosed("<", ">"))
        if self.peek() != "(":
            return Node("name", text)
        self.take()
        parts = [] if self.peek() == ")" else [self.select()]
        while self.peek() == ",":
            self.take()
            parts.append(self.select())
        self.take(")")
        return Node("call", text, tuple(parts))


def names(node: Node) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of every name, called function and measured type in the expression."""
    if node.kind in ("name", "call", "sizeof"):
        yield node.kind, node.text
    for part in node.parts:
        yield from names(part)


class Scope(Protocol):
    def value(self, name: str) -> int: ...
    def type(self, name: str) -> str: ...


def evaluate(node: Node, scope: Scope) -> int:
    if node.kind == "number":
        return _number(node.text)
    if node.kind == "name":
        return scope.value(node.text)
    if node.kind == "sizeof":
        return size_of(node.text, scope)
    if node.kind == "select":
        return evaluate(node.parts[1 if evaluate(node.parts[0], scope) else 2], scope)
    values = [evaluate(part, scope) for part in node.parts]
    if node.kind == "call":
        return _call(node.text.removeprefix("metal::"), values)
    return _unary(node.text, values[0]) if node.kind == "unary" else _binary(node.text, *values)


def _number(text: str) -> int:
    literal = re.fullmatch(r"(0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlL]*", text.replace("'", ""))
    if not literal:
        raise UnknownError(text)
    octal = re.fullmatch(r"0[0-7]+", literal[1])
    return int(literal[1], 8) if octal else int(literal[1], 0)


def _call(function: str, values: Sequence[int]) -> int:
    if function in TYPE_NAMES and len(values) == 1:
        return values[0]
    if function in ("min", "max") and values:
        return min(values) if function == "min" else max(values)
    raise UnknownError(function)


def _unary(operator: str, value: int) -> int:
    results: Mapping[str, int] = {"-": -value, "+": value, "!": int(not value), "~": ~value}
    return results[operator]


def _binary(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise UnknownError("division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    if operator in ("<<", ">>"):
        if not 0 <= right < 64:
            raise UnknownError("shift")
        return left << right if operator == "<<" else left >> right
    results: Mapping[str, int] = {
        "||": left or right, "&&": left and right, "|": left | right, "^": left ^ right, "&": left & right,
        "==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
        ">=": left >= right, "+": left + right, "-": left - right, "*": left * right,
    }  # fmt: skip
    return int(bool(results[operator])) if operator in ("||", "&&") else int(results[operator])


def size_of(type_: str, scope: Scope) -> int:
    """Return the bytes of a type: a built-in one, or a name that the scope resolves."""
    name = re.sub(r"\b(const|volatile|device|constant|thread|threadgroup|metal::)\s*", "", type_).strip()
    name = re.sub(r"^atomic\s*<\s*(\w+)\s*>$|^atomic_(\w+)$", r"\1\2", name)
    template = re.fullmatch(r"vec\s*<\s*(\w+)\s*,\s*(\w+)\s*>", name)
    if template:
        count = template[2] if template[2].isdigit() else scope.value(template[2])
        name = f"{template[1] if template[1] in _SCALARS else scope.type(template[1])}{count}"
    if name in _SCALARS:
        return _SCALARS[name]
    matrix = re.fullmatch(r"(float|half)([234])x([234])", name)
    if matrix:
        return int(matrix[2]) * size_of(matrix[1] + matrix[3], scope)
    vector = re.fullmatch(r"(packed_)?([a-z]+)([234])", name)
    if vector and vector[2] in _SCALARS:
        return _SCALARS[vector[2]] * (4 if vector[3] == "3" and not vector[1] else int(vector[3]))
    return size_of(scope.type(name), scope)
