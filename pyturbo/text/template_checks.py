"""Checks of the functions of a template, which count their text before they run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyturbo.text.template_budget import Budget, LimitError

_NUMBER = re.compile(r"\d+")
_WIDEST_INDENT = 1000
_FINEST_ROUNDING = 300
_LONGEST_NUMBER = 1000
_MOST_BITS = 4096
_LONGEST_ATTRIBUTE = 1000
_EACH = 16  # characters that a small text counts as

#: Checks a call with a value, its arguments and its keyword arguments; returns the value to use.
Check = Callable[[Budget, Any, tuple[Any, ...], Mapping[str, Any]], Any]


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _width(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    width = argument(args, kwargs, 0, "width", 80)
    budget.make(max(width if isinstance(width, int) else 0, budget.size(value)))
    return value


def _tabs(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    size = argument(args, kwargs, 0, "tabsize", 8)
    budget.make(len(value) + value.count("\t") * max(size if isinstance(size, int) else 0, 0))
    return value


def _replace(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    old, new = (argument(args, kwargs, i, name, "") for i, name in enumerate(("old", "new")))
    budget.make(budget.size(value))
    text = str(value)
    count = text.count(old) if isinstance(old, str) else len(text)
    budget.make(count * budget.size(new))
    return value


def _join(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check the filter, whose `value` is the list to join."""
    separator = argument(args, kwargs, 0, "d", "")
    entries = value if isinstance(value, (list, tuple)) else list(budget.counted(value))
    budget.make(budget.size(entries) + len(entries) * budget.size(separator))
    return entries


def _split(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    separator = argument(args, kwargs, 0, "sep", None)
    most = value.count(separator) if isinstance(separator, str) and separator else len(value)
    limit = argument(args, kwargs, 1, "maxsplit", -1)
    if isinstance(limit, int) and 0 <= limit < most:
        most = limit
    budget.make(len(value))
    budget.make_entries(most + 1)
    return value


def _searched_back(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check searches from the end, for which Python may compare the whole pattern at every place."""
    sought = argument(args, kwargs, 0, "sep", None)
    budget.read(len(value) * (len(sought) if isinstance(sought, str) else 1))
    return value


def _split_back(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    _searched_back(budget, value, args, kwargs)
    return _split(budget, value, args, kwargs)


def _strip(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check strip, which may compare each character with all that are to be stripped."""
    characters = argument(args, kwargs, 0, "chars", None)
    budget.read(budget.size(value) * (len(characters) if isinstance(characters, str) else 1))
    return value


def _taken_apart(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check filters that make a small text of each word or character."""
    budget.make(budget.size(value) * _EACH)
    return value


def _indent(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    width = argument(args, kwargs, 0, "width", 4)
    budget.make(budget.size(value))
    lines = len(str(value).splitlines()) + 1
    budget.make(budget.size(value) + lines * (width if isinstance(width, int) else budget.size(width)))
    return value


def _entries(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check batch and slice, whose first argument is a count."""
    count = argument(args, kwargs, 0, "linecount", kwargs.get("slices", 0))
    budget.make_entries(count if isinstance(count, int) and count > 0 else 0)
    return value


def _round(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    precision = argument(args, kwargs, 0, "precision", 0)
    if isinstance(precision, int) and abs(precision) > _FINEST_ROUNDING:
        raise LimitError(f"round: expected at most {_FINEST_ROUNDING} digits, got more")
    return value


def _number(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if isinstance(value, (str, bytes)) and len(value) > _LONGEST_NUMBER:
        raise LimitError(f"expected a number of at most {_LONGEST_NUMBER} characters, got {len(value)}")
    return value


def _sum(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if not isinstance(argument(args, kwargs, 1, "start", 0), (int, float)):
        raise LimitError("sum: expected numbers, got something else")
    return value


def check_attribute(name: Any) -> None:
    if isinstance(name, str) and len(name) > _LONGEST_ATTRIBUTE:
        raise LimitError(f"expected an attribute of at most {_LONGEST_ATTRIBUTE} characters, got {len(name)}")


def _attribute(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check filters that look up an attribute of each entry lazily."""
    check_attribute(argument(args, kwargs, 0, "attribute", None))
    return value


def percent_format(budget: Budget, text: str, values: Any) -> None:
    """Check `text % values`."""
    if "*" in text:
        raise LimitError("%: expected widths written as numbers, got *")
    _formatted(budget, text, text.count("%"), values)


def brace_format(budget: Budget, text: str, values: Any) -> None:
    """Check `text.format(...)` with these values: fields must be names, and widths numbers."""
    fields = re.findall(r"{([^{}!:]*)", text)
    if any("." in field or "[" in field for field in fields) or re.search(r":[^{}:]*{", text):
        raise LimitError("format: expected fields that are names or numbers, with plain widths")
    _formatted(budget, text, text.count("{"), values)


def _formatted(budget: Budget, text: str, fields: int, values: Any) -> None:
    widths = [number if len(number) < 10 else "9" * 10 for number in _NUMBER.findall(text)]
    budget.make(len(text) + sum(map(int, widths)) + fields * budget.size(values))


def _percent(budget: Budget, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Check the filter `format`."""
    percent_format(budget, str(value), (args, dict(kwargs)))
    return value


def check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise LimitError(f"expected numbers of at most {_MOST_BITS} bits, got more")


def check_number(value: Any) -> None:
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise LimitError(f"expected numbers of at most {_MOST_BITS} bits, got more")


def to_json(
    budget: Budget, value: Any, ensure_ascii: bool, indent: Any, separators: Any, sort_keys: bool
) -> str:
    """Return plain JSON; Jinja's own filter would escape HTML."""
    budget.make(budget.size(value))
    width = budget.size(indent) if isinstance(indent, str) else indent if isinstance(indent, int) else 0
    if width > _WIDEST_INDENT:
        raise LimitError(f"tojson: expected an indent of at most {_WIDEST_INDENT}, got more")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None and separators is None:
        return encoder.encode(value)
    parts = []
    for part in encoder.iterencode(value):
        budget.make(len(part))
        parts.append(part)
    return "".join(parts)


#: Filters that read a container but not its entries.
SHALLOW = frozenset(
    """
    length count first last default d map select reject selectattr rejectattr attr items random safe
    """.split()  # noqa: SIM905
)
#: Filters that split a text into its characters.
ITERATING = frozenset("batch groupby list max min slice sort sum unique".split())  # noqa: SIM905
#: Filters that no prompt needs and whose cost is hard to bound.
MISSING = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")

FILTERS: dict[str, Check] = {
    "batch": _entries,
    "center": _width,
    "format": _percent,
    "indent": _indent,
    "int": _number,
    "float": _number,
    "join": _join,
    "map": _attribute,
    "rejectattr": _attribute,
    "replace": _replace,
    "round": _round,
    "selectattr": _attribute,
    "slice": _entries,
    "sum": _sum,
    "title": _taken_apart,
    "trim": _strip,
    "urlencode": _taken_apart,
    "wordcount": _taken_apart,
}
#: Filters that first look up an attribute of each entry, with the index of the argument that names it.
ATTRIBUTES = {"groupby": 0, "join": 1, "max": 1, "min": 1, "sort": 2, "sum": 0, "unique": 1}

METHODS: dict[str, Check] = {
    "center": _width,
    "expandtabs": _tabs,
    "ljust": _width,
    "lstrip": _strip,
    "replace": _replace,
    "rfind": _searched_back,
    "rindex": _searched_back,
    "rjust": _width,
    "rpartition": _searched_back,
    "rsplit": _split_back,
    "rstrip": _strip,
    "split": _split,
    "splitlines": _split,
    "strip": _strip,
    "zfill": _width,
}
#: Methods of built-in types that no prompt needs and whose cost is hard to bound.
UNSAFE_METHODS = frozenset(
    """
    decode encode from_bytes fromkeys maketrans striptags to_bytes translate unescape
    """.split()  # noqa: SIM905
)
