"""Schemas whose values can end, and those whose cannot."""

from __future__ import annotations

from typing import Any

import pytest

from pyturbo.text.finite import can_end


def needs(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def refers(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


TREE = {"type": "array", "items": {"$ref": "#"}}
ENDS: list[Any] = [
    {},
    True,
    needs(a={"type": "integer"}),
    {**needs(a={"$ref": "#"}), "required": []},
    TREE,
    {**TREE, "minItems": 0},
    needs(a={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    {**needs(a={"$ref": "#"}), "type": ["object", "null"]},
    {**needs(a={"$ref": "#"}), "enum": [1]},
    {"$ref": "http://example.com/other"},
    {"$ref": "#/$defs/missing"},
    {"$defs": {"x/y": {"type": "null"}}, "$ref": "#/$defs/x~1y"},
    {"$defs": {"a": needs(b=refers("b")), "b": needs(c=refers("c")), "c": {"type": "string"}}, **refers("a")},
    {
        "$defs": {"a": {"oneOf": [needs(b=refers("b")), {"const": 1}]}, "b": needs(a=refers("a"))},
        **refers("b"),
    },
    needs(a={"$ref": 5}),
    {"$ref": "#anchor"},
    {
        "type": "object",
        "required": ["a"],
        "patternProperties": {"a": {}},
        "additionalProperties": {"$ref": "#"},
    },
]
ENDLESS: list[Any] = [
    {"$ref": "#"},
    needs(a={"$ref": "#"}),
    {**TREE, "minItems": 1},
    {**TREE, "minItems": 2, "prefixItems": [{"type": "null"}]},
    {**TREE, "minItems": 1, "prefixItems": [{"$ref": "#"}], "items": {}},
    {"type": "object", "required": ["a"], "additionalProperties": {"$ref": "#"}},
    needs(a={"anyOf": [{"$ref": "#"}, {"allOf": [{}, {"$ref": "#"}]}]}),
    {"$defs": {"a": needs(b=refers("b")), "b": needs(a=refers("a"))}, **refers("a")},
]


@pytest.mark.parametrize("schema", ENDS)
def test_values_that_can_end(schema: Any) -> None:
    assert can_end(schema)


@pytest.mark.parametrize("schema", ENDLESS)
def test_values_that_cannot(schema: Any) -> None:
    assert not can_end(schema)


def test_what_takes_too_long_to_find_out_can_end() -> None:
    chain = {str(i): needs(a=refers(str(i + 1))) for i in range(2000)}
    assert can_end({"$defs": {**chain, "2000": refers("0")}, **refers("0")})
    deep: dict[str, Any] = {"$ref": "#"}
    for _ in range(2000):
        deep = needs(a=deep)
    assert can_end(deep)
