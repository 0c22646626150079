"""Values that are written as text, whose types a schema knows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_WORDS = {"true": True, "false": False, "null": None, "none": None}


def is_text(schema: Mapping[str, Any] | None) -> bool:
    """Return whether a value is text whatever it looks like: its schema says so, or there is none."""
    if schema is None:
        return True
    return (
        "enum" not in schema and schema.get("type", None if _TYPED & schema.keys() else "string") == "string"
    )


def may_be_text(schema: Mapping[str, Any]) -> bool:
    """Return whether text is among the types of a value."""
    return "string" in _kinds(schema)


def value_of(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Return the value that a text stands for; the text itself where the schema has no other type for it.

    Examples:
        >>> from pyturbo.text.dialects.typed_text import value_of
        >>> value_of("2", {"type": "integer"}), value_of("2", {"type": "string"})
        (2, '2')
        >>> value_of("True", {"type": "boolean"})
        True
    """
    if schema is None or is_text(schema):
        return text
    for choice in schema.get("enum") or ():
        if text == (choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False)):
            return choice
    kinds, word = _kinds(schema), text.strip().lower()
    try:
        value = _WORDS[word] if word in _WORDS else json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, str) and "string" in kinds:
        return text  # what looks like a quoted text is the text
    return value if not kinds or any(_is(value, kind) for kind in kinds) else text


def text_of_value(value: Any) -> str:
    """Return the text of a value, as `value_of` reads it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_TYPED = {"anyOf", "oneOf", "allOf", "$ref", "enum", "const", "properties", "items"}


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names, also in its alternatives; empty if any value will do."""
    kind = schema.get("type")
    listed = kind if isinstance(kind, (list, tuple)) else (kind,)
    kinds = {each for each in listed if isinstance(each, str)}
    for alternatives in (schema.get("anyOf"), schema.get("oneOf")):
        for each in alternatives if isinstance(alternatives, (list, tuple)) else ():
            kinds |= _kinds(each) if isinstance(each, Mapping) else set()
    return kinds


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity, which JSON does not have


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, (int, float)):
        return math.isfinite(value) and (kind == "number" or (kind == "integer" and value == int(value)))
    return kind == ("array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string")
