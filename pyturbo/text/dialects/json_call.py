"""Calls that are a JSON object with a name and arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from pyturbo.text.dialects.json_end import JsonEnd
from pyturbo.text.dialects.message import json_object
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.writer import Writer

_STRING = r'"(?:[^"\\]|\\.)*"'
#: The usual order, in which arguments can be passed on while they arrive.
_HEAD = re.compile(
    rf'\{{\s*"name"\s*:\s*({_STRING})\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)', re.DOTALL
)
_FIRST_KEY = re.compile(rf"\{{\s*({_STRING})", re.DOTALL)
_KEYS = {"name", "function", "arguments", "parameters", "type", "id"}


def read_json_call(reader: Reader, writer: Writer, names: Collection[str] | None = None) -> Step[bool]:
    """Take a call at the start of the text; with `names` only of one of these functions.

    Returns False, and takes nothing, if there is no call. A call whose object lacks its last bracket counts.
    """
    start = yield from reader.after_spaces()
    if not (yield from reader.is_at(start, "{")):
        return False
    end = JsonEnd(start)
    while True:
        key = _FIRST_KEY.match(reader.text, start)
        if key is not None and _text(key[1]) not in _KEYS:
            return False
        head = _HEAD.match(reader.text, start)
        if head is not None:
            name = _text(head[1])
            if not name or (names is not None and name not in names):
                return False
            writer.begin_call(name)
            reader.take(head.end())
            yield from copy_object(reader, writer)
            yield from take_if(reader, "}")
            writer.end_call()
            return True
        end.read(reader.text)
        if end.ended:
            call = _call_of(json_object(reader.text[start : end.place]))
            if call is None or (names is not None and call[0] not in names):
                return False
            writer.begin_call(call[0])
            reader.take(end.place)
            writer.arguments(call[1])
            writer.end_call()
            return True
        if end.broken or not (yield from reader.more()):
            return False


def copy_object(reader: Reader, writer: Writer) -> Step[None]:
    """Take an object at the start of the text as arguments, up to its end or to what cannot be part of it."""
    end = JsonEnd()
    while True:
        end.read(reader.text)
        writer.arguments(reader.take(end.place))
        if end.ended or end.broken:
            return
        end.place = 0
        if not (yield from reader.more()):
            writer.arguments(reader.take(len(reader.text)))
            return


def take_if(reader: Reader, literal: str) -> Step[bool]:
    """Take a literal text and white space before it, if it comes next."""
    place = yield from reader.after_spaces()
    if not (yield from reader.is_at(place, literal)):
        return False
    reader.take(place + len(literal))
    return True


def _text(literal: str) -> str | None:
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:
        return None


def _call_of(value: dict[str, Any] | None) -> tuple[str, str] | None:
    """Return name and arguments of a call in any order, None if anything is missing or unknown."""
    if value is None:
        return None
    if isinstance(value.get("function"), dict):
        value = value | value["function"]
        del value["function"]
    name = value.pop("name", None) or value.pop("function", None)
    arguments = value.pop("arguments", None) if "arguments" in value else value.pop("parameters", {})
    if isinstance(arguments, str):
        arguments = json_object(arguments)
    elif arguments is None:
        arguments = {}
    if (
        not isinstance(name, str)
        or not name
        or not isinstance(arguments, dict)
        or value.keys() - {"type", "id"}
    ):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)
