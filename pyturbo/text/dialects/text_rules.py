"""Texts of a JSON schema as terminals of a grammar, for dialects that write them without quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError, StateError
from pyturbo.text.constraint import validate

#: What says nothing about a text.
_NOTES = {"type", "title", "description", "default", "examples", "deprecated", "$comment"}

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}

_MOST = 2000  # characters that are counted

_ANY = r"(.|\n)*"

#: Parts of a regular expression: an escaped character, a class, a bracket, an alternative, an anchor.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|^$]", re.DOTALL)


def text_rules(schema: Mapping[str, Any], *, strict: bool) -> list[str]:
    """Return regular expressions that whole texts of a schema match, all of them; none if any text will do.

    What they cannot say is left out, unless the schema is `strict`: then it is an ArgumentError.

    Examples:
        >>> from pyturbo.text.dialects.text_rules import text_rules
        >>> text_rules({"type": "string", "pattern": "^[A-Z]+$", "format": "hostname"}, strict=False)
        ['([A-Z]+)']
    """
    known = {
        "pattern": _whole(schema.get("pattern")),
        "format": _FORMATS.get(str(schema.get("format"))),
        "minLength": _counted(schema.get("minLength"), "{{{},}}"),
        "maxLength": _counted(schema.get("maxLength"), "{{0,{}}}"),
    }
    rules = {name: rule for name, rule in known.items() if rule is not None}
    if strict and (unknown := schema.keys() - _NOTES - rules.keys()):
        name = min(unknown)
        raise ArgumentError(f"tools: {name}: expected what a text can be held to, got {shown(schema[name])}")
    if {"minLength", "maxLength"} <= rules.keys() and schema["minLength"] > schema["maxLength"]:
        raise ArgumentError(
            f"tools: minLength: expected at most maxLength, {schema['maxLength']}, got {schema['minLength']}"
        )
    return list(rules.values())


def _counted(count: Any, times: str) -> str | None:
    known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= _MOST
    return rf"(.|\n){times.format(count)}" if known else None


def _whole(pattern: Any) -> str | None:
    """Return what matches whole texts in which the pattern matches a part; None if it is not so simple.

    Anchors are, at the ends of a pattern that has no alternatives outside of groups.
    """
    if not isinstance(pattern, str):
        return None
    depth, anchors, alternatives = 0, [], False
    for part in _PARTS.finditer(pattern):
        text = part.group()
        depth += (text == "(") - (text == ")")
        alternatives |= text == "|" and depth == 0
        if text in ("^", "$"):
            anchors.append(part.start())
    first, last = pattern.startswith("^"), pattern.endswith("$") and len(pattern) - 1 in anchors
    inner = pattern[first : len(pattern) - last]
    if len(anchors) > first + last or (anchors and alternatives) or not _is_known(inner):
        return None
    return f"{'' if first else _ANY}({inner}){'' if last else _ANY}"


def _is_known(regex: str) -> bool:
    """Return whether llguidance reads an expression; without it, nothing is held to one."""
    try:
        validate("regex", regex)
    except ArgumentError:
        return False
    except StateError:
        return True
    return True
