"""Splits a shader into its program-scope items, and reads kernels, constants and structs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .tokens import Token
from .unit import Attribute, Range, Unit

_TYPE_WORDS = ("struct", "class", "union", "enum")
_NOT_FUNCTIONS = ("decltype", "alignas", "__attribute__", "noexcept", "sizeof")
_SCOPE_WORDS = ("inline", "namespace", "extern")
_CONTROL = ("for", "if", "while", "switch", "constexpr")
_BEFORE_STATEMENT = ("{", "}", ";", "else", "do")
_LABELS = ("public", "private", "protected")


@dataclass
class Item:
    """A declaration at program or class scope."""

    kind: str  # "function", "type", "variable", "alias", "instantiation" or "other"
    begin: int
    end: int
    head: int  # first token after the template headers
    namespace: tuple[str, ...]
    template: Range | None = None  # inside the angle brackets of its last template header
    name: str = ""
    params: Range | None = None  # inside the parentheses
    body: Range | None = None  # inside the braces
    members: list[Item] = field(default_factory=list)


@dataclass
class TemplateParameter:
    name: str
    type: str  # "typename", "template", or the declared type of a value
    is_pack: bool
    default: str


@dataclass
class Constant:
    """A program-scope constant or an enumerator."""

    name: str
    type: str
    value: str  # its initialiser
    index: int = -1  # of a function constant
    slot: int = -1  # of a function constant: its number among those of the shader
    derived: bool = False  # its value depends on function constants
    required: bool = True  # the shader never asks whether it is defined


@dataclass
class Instance:
    host_name: str
    arguments: list[str]  # template arguments, defaults filled in
    where: Token


@dataclass
class Kernel:
    item: Item
    template: list[TemplateParameter]
    attributes: list[Attribute]
    parameters: list[Range]
    instances: list[Instance] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.item.name

    def bindings(self, instance: Instance) -> dict[str, str]:
        return dict(zip((parameter.name for parameter in self.template), instance.arguments))


class Parser:
    """Items of one unit. A span that is not understood is kept as "other", for the compiler to judge."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    def items(self, span: Range, namespace: tuple[str, ...] = ()) -> Iterator[Item]:
        i, end = span
        while i < end:
            if self.unit.text(i) == ";" or (self.unit.text(i) in _LABELS and self.unit.text(i + 1) == ":"):
                i += 1 if self.unit.text(i) == ";" else 2
                continue
            opening = self.unit.find((i, end), ("{", ";", "=", "("))
            words = [self.unit.text(k) for k in range(i, opening)]
            is_scope = "namespace" in words[:2] or (words[:1] == ["extern"] and len(words) == 2)
            if self.unit.text(opening) == "{" and is_scope:
                names = tuple(w for w in words if w.isidentifier() and w not in _SCOPE_WORDS)
                yield from self.items((opening + 1, self.unit.match[opening]), namespace + names)
                i = self.unit.match[opening] + 1
            else:
                item = self._item(i, end, namespace)
                yield item
                i = item.end

    def _item(self, begin: int, end: int, namespace: tuple[str, ...]) -> Item:
        item = Item("other", begin, end, begin, namespace)
        while self.unit.text(item.head) == "template" and self.unit.text(item.head + 1) == "<":
            closing = self.unit.angle(item.head + 1)
            if closing is None:
                return item
            item.template, item.head = (item.head + 2, closing), closing + 1
        self._extent(item, end)
        first = self.unit.text(item.head)
        if first == "template":
            item.kind = "instantiation"
        elif self._is_type(item.head) and (item.body or first != "typedef"):
            item.kind = "type"
            item.name = self.unit.text(item.end - 2) if first == "typedef" else item.name
        elif first in ("using", "typedef"):
            item.kind = "alias"
        elif item.params:
            item.kind = "function"
        elif first not in ("static_assert", "friend"):
            item.kind = "variable"
        if item.kind == "type" and item.body and "enum" not in self._words(item.head, item.body[0]):
            item.members = list(self.items(item.body, namespace))
        return item

    def _words(self, begin: int, end: int) -> list[str]:
        return [self.unit.text(i) for i in range(begin, end)]

    def _is_type(self, i: int) -> bool:
        while self.unit.is_attribute(i):
            i = self.unit.match[i] + 1
        return self.unit.text(i) in _TYPE_WORDS or (
            self.unit.text(i) == "typedef" and self.unit.text(i + 1) in _TYPE_WORDS
        )

    def _extent(self, item: Item, end: int) -> None:
        """Find the end of the item, and on the way its name, parameters and body."""
        unit, i, initialised, members = self.unit, item.head, False, False
        is_type = self._is_type(item.head)
        while i < end:
            text = unit.text(i)
            if text == ";":
                break
            if text == "operator" and not item.params:
                i, item.name = self._operator(i), "operator"
                continue
            named = item.params is None and not (initialised or is_type)
            if text == "(" and named and self._opens_parameters(i, item):
                item.params = (i + 1, unit.match[i])
                item.name = item.name or unit.text(self._name_before(i))
            elif text == "=":
                initialised = True
            elif text == ":" and item.params:
                members = True
            elif text == "{" and not initialised:
                if item.body is None and not (members and unit.is_name(i - 1)):
                    item.body = (i + 1, unit.match[i])
                if item.params and item.body == (i + 1, unit.match[i]):
                    item.end = unit.match[i] + 1
                    return
                if is_type:
                    item.name = item.name or self._type_name(item.head, i)
            i = unit.skip(i) + 1
        item.end = min(i + 1, end)

    def _operator(self, i: int) -> int:
        """Return the parenthesis that opens the parameters of the operator at i."""
        i += 3 if self.unit.text(i + 1) == "(" else 1
        while self.unit.text(i) != "(":
            i += 1
        return i

    def _opens_parameters(self, i: int, item: Item) -> bool:
        name = self.unit.text(self._name_before(i))
        return item.name == "operator" or (bool(name) and name not in _NOT_FUNCTIONS)

    def _name_before(self, i: int) -> int:
        """Return the name before a parenthesis, skipping template arguments; -1 when there is none."""
        i -= 1
        if self.unit.text(i) == ">":
            depth = 0
            while i >= 0:
                depth += {">": 1, "<": -1}.get(self.unit.text(i), 0)
                i -= 1
                if depth == 0:
                    break
        return i if self.unit.is_name(i) else -1

    def _type_name(self, begin: int, end: int) -> str:
        stop = next((i for i in range(begin, end) if self.unit.text(i) in ("<", ":")), end)
        names = [self.unit.text(i) for i in range(begin, stop) if self.unit.is_name(i)]
        return names[-1] if names[-1] not in _TYPE_WORDS else ""


def flatten(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, each followed by its members."""
    for item in items:
        yield item
        yield from flatten(item.members)


def statements(unit: Unit, body: Range) -> Iterator[Range]:
    """Yield the places where statements may start in a function, each up to the end of its bracket."""
    blocks: list[tuple[bool, int]] = [(True, body[1])]  # is a block of statements, end
    for i in range(*body):
        before = unit.text(i - 1)
        while i > blocks[-1][1]:
            blocks.pop()
        inside = blocks[-1][0]
        head = before == "(" and unit.text(i - 2) in _CONTROL
        after_head = before == ")" and unit.text(unit.match[i - 1] - 1) in _CONTROL
        if head:
            yield i, unit.match[i - 1]
        elif inside and (i == body[0] or before in _BEFORE_STATEMENT or after_head or _is_label(unit, i - 1)):
            yield i, blocks[-1][1]
        if unit.text(i) == "{":
            starts = before in _BEFORE_STATEMENT or _is_label(unit, i - 1)
            block = before in (")", "mutable") or (inside and starts)
            blocks.append((block, unit.match[i]))
        elif unit.text(i) in ("(", "["):
            blocks.append((False, unit.match[i]))


def _is_label(unit: Unit, i: int) -> bool:
    """Return whether the token at i is the colon of a `case` or `default`."""
    if unit.text(i) != ":":
        return False
    while unit.text(i) not in ("{", "}", ";", "case", "default", "?"):
        i -= 1
    return unit.text(i) in ("case", "default")


def template_parameters(unit: Unit, span: Range | None) -> list[TemplateParameter]:
    found = []
    for begin, end in unit.split(span) if span else []:
        equals = unit.find((begin, end), ("=",))
        default = unit.spell((equals + 1, end)) if equals < end else ""
        names = [unit.text(i) for i in range(begin, equals) if unit.is_name(i)]
        pointers = [i for i in range(begin, equals) if unit.text(i) == "*" and unit.text(i - 1) == "("]
        last = names[-1] if len(names) > 1 else ""
        name = unit.text(pointers[0] + 1) if pointers else last
        is_pack = any(unit.text(i) == "..." for i in range(begin, equals))
        type_ = " ".join(names[:-1]) if not pointers else unit.spell((begin, equals))
        if names[0] in ("typename", "class"):
            type_ = "typename"
        elif "template" in names:
            type_ = "template"
        found.append(TemplateParameter(name, type_, is_pack, default))
    return found


def fields(unit: Unit, item: Item) -> list[tuple[str, str]]:
    """Return the name and type of each data member of a struct."""
    found = []
    for member in item.members:
        if member.kind != "variable":
            continue
        declaration = unit.declaration((member.begin, member.end))
        if declaration is None or "static" in (unit.text(i) for i in declaration.specifiers):
            continue
        type_ = " ".join(unit.text(i) for i in declaration.specifiers)
        for declarator in declaration.declarators:
            if declarator.name is not None:
                stars = "".join(unit.text(i) for i in declarator.stars)
                found.append((unit.text(declarator.name), type_ + stars + unit.spell(declarator.dims)))
    return found
