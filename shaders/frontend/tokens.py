"""Tokens of a preprocessed shader: each knows the file and the line it was written on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Token(NamedTuple):
    kind: str  # "id", "number", "string", "char" or "punct"
    text: str
    file: str
    line: int
    space: int  # characters of white space before it on its line
    pragma: str = ""  # what the directive on the line before it says


class Line(NamedTuple):
    file: str
    number: int
    text: str


@dataclass
class Errors:
    """Error messages in the order found; each is kept once."""

    found: list[str] = field(default_factory=list)

    def add(self, where: Token | Line, message: str) -> None:
        number = where.line if isinstance(where, Token) else where.number
        text = f"{where.file}:{number}: error: {message}"
        if text not in self.found:
            self.found.append(text)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ">" is always a token of its own, so that nested template arguments close one by one.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>(?:u8|[uUL])?"(?:[^"\\]|\\.)*")
      | (?P<char>'(?:[^'\\]|\\.)*')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<id>[A-Za-z_]\w*)
      | (?P<punct>\.\.\.|->|::|\+\+|--|<<=|<<|&&|\|\||[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE,
)


def tokenise(lines: Iterable[Line]) -> list[Token]:
    """Split lines into tokens. Keeps the last #pragma before each and joins adjacent string literals."""
    tokens: list[Token] = []
    pragma = ""
    for line in lines:
        if line.text.lstrip().startswith("#"):
            pragma = line.text.partition("pragma")[2].strip()
            continue
        space = 0
        for match in _TOKEN.finditer(line.text):
            kind = str(match.lastgroup)
            if kind == "space":
                space = len(match.group())
                continue
            text = match.group()
            if kind == "string" and tokens and tokens[-1].kind == "string":
                tokens[-1] = tokens[-1]._replace(text=tokens[-1].text[:-1] + text[text.index('"') + 1 :])
            else:
                tokens.append(Token(kind, text, line.file, line.number, space, pragma))
            space, pragma = 0, ""
    return tokens


def brackets(tokens: Sequence[Token], errors: Errors) -> dict[int, int] | None:
    """Map the index of each bracket to that of its partner; None when one has no partner."""
    pairs, matching = {")": "(", "]": "[", "}": "{"}, {}
    stack: list[int] = []
    for i, token in enumerate(tokens):
        if token.kind != "punct":
            continue
        if token.text in "([{":
            stack.append(i)
        elif token.text in pairs:
            if not stack or tokens[stack[-1]].text != pairs[token.text]:
                errors.add(token, f"unmatched '{token.text}'")
                return None
            opening = stack.pop()
            matching[opening], matching[i] = i, opening
    if stack:
        errors.add(tokens[stack[-1]], f"unmatched '{tokens[stack[-1]].text}'")
        return None
    return matching


def spell(tokens: Iterable[Token]) -> str:
    """Return the tokens as one line of text, spaced as written."""
    return "".join((" " if token.space else "") + token.text for token in tokens).strip()
