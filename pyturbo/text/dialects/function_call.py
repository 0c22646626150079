"""Calls with one tag for each argument: <function=name><parameter=key>value</parameter></function>."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyturbo.text.dialects.json_call import take_if
from pyturbo.text.dialects.json_end import JsonEnd
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.typed_text import is_text, may_be_text, value_of
from pyturbo.text.dialects.writer import Writer

FUNCTION, END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


def read_function_call(reader: Reader, writer: Writer, tools: Mapping[str, Tool]) -> Step[bool]:
    """Take a call at the start of the text; False, and nothing taken, if there is none.

    Arguments become JSON. Values have the types of the tool's schema, and are text where it has none.
    """
    name = yield from _take_name(reader, FUNCTION)
    if not name:
        return False
    writer.begin_call(name)
    writer.arguments("{")
    separator = ""
    while not (yield from take_if(reader, END)):
        key = yield from _take_name(reader, PARAMETER)
        if not key:
            writer.end_call()
            return True
        writer.arguments(f"{separator}{_quoted(key)}: ")
        separator = ", "
        tool = tools.get(name)
        schema = None if tool is None else tool.schema_of(key)
        as_text = schema is None or is_text(schema)
        read = _read_text(reader, writer) if as_text else _read_value(reader, writer, schema or {})
        if not (yield from read):
            writer.end_call()
            return True
    writer.arguments("}")
    writer.end_call()
    return True


def _take_name(reader: Reader, tag: str) -> Step[str]:
    """Take a tag with the name in it; "", and nothing taken, if there is none."""
    start = yield from reader.after_spaces()
    if not (yield from reader.is_at(start, tag)):
        return ""
    place, end = yield from reader.find((">", "<", "\n"), start + len(tag))
    name = reader.text[start + len(tag) : place].strip()
    if end != ">" or not name:
        return ""
    reader.take(place + 1)
    return name


def _read_text(reader: Reader, writer: Writer) -> Step[bool]:
    """Take a value as a JSON string while it arrives. Returns whether it ended."""
    yield from _skip_line_break(reader)
    writer.arguments('"')
    ends = ("\n" + PARAMETER_END, PARAMETER_END)
    if not (yield from reader.copy_until(ends, lambda piece: writer.arguments(_quoted(piece)[1:-1]))):
        return False
    writer.arguments('"')
    return True


def _read_value(reader: Reader, writer: Writer, schema: Mapping[str, Any]) -> Step[bool]:
    """Take a value whose type the schema knows. One that is cut off is passed on as text."""
    yield from _skip_line_break(reader)
    start = 0 if may_be_text(schema) else (yield from _after_json(reader))
    place, end = yield from reader.find(("\n" + PARAMETER_END, PARAMETER_END), start)
    text = reader.take(place)
    reader.take(len(end))
    writer.arguments(json.dumps(value_of(text, schema), ensure_ascii=False) if end else _quoted(text)[:-1])
    return bool(end)


def _after_json(reader: Reader) -> Step[int]:
    """Return the place after a JSON list, object or string at the start of the text; 0 if there is none."""
    start = yield from reader.after_spaces()
    if not (yield from reader.has(start)) or reader.text[start] not in '{["':
        return 0
    value = JsonEnd(start)
    while True:
        value.read(reader.text)
        if value.ended:
            return value.place
        if value.broken or not (yield from reader.more()):
            return 0


def _skip_line_break(reader: Reader) -> Step[None]:
    if (yield from reader.is_at(0, "\n")):
        reader.take(1)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
