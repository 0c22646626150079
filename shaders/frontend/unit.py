"""One preprocessed shader as a list of tokens, and the small pieces of C++ grammar read from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .tokens import Errors, Token, brackets, spell, words

Range = tuple[int, int]  # token indices [begin, end)

ADDRESS_SPACES = words("device constant thread threadgroup threadgroup_imageblock ray_data object_data")
QUALIFIERS = ADDRESS_SPACES | words(
    "const volatile static constexpr inline extern mutable typename struct class union enum typedef friend"
    " explicit virtual kernel coherent restrict __restrict METAL_FUNC"
)
_BASIC = words("unsigned signed long short int char")
_NOT_TYPES = words(
    "return else goto break continue case default delete new throw using namespace template if for while do"
    " switch operator public private protected static_assert this sizeof true false asm try catch"
)


@dataclass
class Attribute:
    name: str
    arguments: Range  # inside the parentheses; empty without
    where: Token


@dataclass
class Declarator:
    stars: list[int]  # tokens "*", "&" and "&&" before the name
    name: int | None
    dims: Range  # array bounds
    init: Range  # "= ...", "{...}" or "(...)", without the comma or semicolon after it


@dataclass
class Declaration:
    specifiers: list[int]  # tokens of the type and its qualifiers
    declarators: list[Declarator] = field(default_factory=list)


@dataclass(eq=False)
class Unit:
    path: str
    tokens: list[Token]
    errors: Errors
    match: dict[int, int] = field(default_factory=dict)
    balanced: bool = True

    def __post_init__(self) -> None:
        matched = brackets(self.tokens, self.errors)
        self.balanced, self.match = matched is not None, matched or {}

    def text(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def spell(self, span: Range) -> str:
        return spell(self.tokens[span[0] : span[1]])

    def is_name(self, i: int) -> bool:
        return 0 <= i < len(self.tokens) and self.tokens[i].kind == "id"

    def is_attribute(self, i: int) -> bool:
        return self.text(i) == "[" and self.text(i + 1) == "["

    def angle(self, i: int) -> int | None:
        """Return the index of the ">" that closes the "<" at i, or None when that is a comparison."""
        depth = 0
        while i < len(self.tokens):
            text = self.text(i)
            if text in ("(", "["):
                i = self.match[i]
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in (";", "{", "}", ")", "]"):
                return None
            i += 1
        return None

    def split(self, span: Range) -> list[Range]:
        """Split at commas outside of brackets and template arguments."""
        parts, begin, i = [], span[0], span[0]
        while i < span[1]:
            i = self.skip(i)
            if i < span[1] and self.text(i) == ",":
                parts.append((begin, i))
                begin = i + 1
            i += 1
        return [*parts, (begin, span[1])] if span[1] > span[0] else []

    def skip(self, i: int) -> int:
        """Return the last token of the bracket or template arguments that open at i, else i."""
        if self.text(i) in ("(", "[", "{"):
            return self.match[i]
        if self.text(i) == "<" and self.is_name(i - 1):
            return self.angle(i) or i
        return i

    def find(self, span: Range, texts: tuple[str, ...]) -> int:
        """Return the first of `texts` outside of brackets, or the end of the span."""
        i = span[0]
        while i < span[1] and self.text(i) not in texts:
            i = self.skip(i) + 1
        return min(i, span[1])

    def attributes(self, span: Range) -> Iterator[Attribute]:
        i = span[0]
        while i < span[1]:
            if self.is_attribute(i):
                for begin, end in self.split((i + 2, self.match[i] - 1)):
                    opening = self.find((begin, end), ("(",))
                    arguments = (opening + 1, self.match[opening]) if opening < end else (end, end)
                    yield Attribute(self.spell((begin, opening)), arguments, self.tokens[begin])
                i = self.match[i]
            i += 1

    def qualified(self, i: int) -> int:
        """Return the end of the possibly qualified name at i, including its template arguments."""
        while True:
            i += 1 if self.text(i) == "::" else 0
            if self.text(i) == "decltype":
                i = self.match[i + 1] + 1
            else:
                i += 1
                closing = self.angle(i) if self.text(i) == "<" else None
                i = i if closing is None else closing + 1
            if self.text(i) != "::" or not self.is_name(i + 1):
                return i

    def declaration(self, span: Range, unnamed: bool = False) -> Declaration | None:
        """Read the declaration that starts the span; None when something else does.

        With `unnamed` the span is a whole parameter, which needs no name.
        """
        i, end = span
        found = Declaration([])
        typed = False
        while i < end:
            if self.is_attribute(i):
                i = self.match[i] + 1
            elif self.text(i) in ("alignas", "__attribute__", "coherent") and self.text(i + 1) == "(":
                i = self.match[i + 1] + 1
            elif self.text(i) in QUALIFIERS:
                found.specifiers.append(i)
                i += 1
            elif self.is_name(i) or (self.text(i) == "::" and not typed):
                if typed and not (self.text(i) in _BASIC and self.text(found.specifiers[-1]) in _BASIC):
                    break
                if self.text(i) in _NOT_TYPES:
                    return None
                typed, after = True, self.qualified(i)
                found.specifiers.extend(range(i, after))
                i = after
            else:
                break
        if not typed:
            return None
        while i <= end:
            declarator = self._declarator(i, end, unnamed)
            if declarator is None:
                break
            found.declarators.append(declarator)
            i = declarator.init[1] + 1
            if declarator.init[1] >= end or self.text(declarator.init[1]) != ",":
                break
        return found if found.declarators else None

    def _declarator(self, i: int, end: int, unnamed: bool) -> Declarator | None:
        stars, name = [], None
        while i < end and (self.text(i) in ("*", "&", "&&", "...") or self.text(i) in QUALIFIERS):
            if self.text(i) in ("*", "&", "&&"):
                stars.append(i)
            i += 1
        if i < end and self.is_name(i):
            name, i = i, i + 1
        elif not unnamed:
            return None
        begin = i
        while i < end and self.text(i) == "[" and not self.is_attribute(i):
            i = self.match[i] + 1
        dims = (begin, i)
        while i < end and self.is_attribute(i):
            i = self.match[i] + 1
        if self.text(i) not in ("=", ";", ",", "{", "(", ":") if i < end else not unnamed:
            return None
        return Declarator(stars, name, dims, (i, self.find((i, end), (",", ";"))))
