"""Two functions with one schema, as each API has them."""

from __future__ import annotations

from typing import Any

UNIT: dict[str, Any] = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "exact": {"type": "boolean"}},
    "required": ["unit", "exact"],
    "additionalProperties": False,
}
_NAMES = ("measure", "weigh")
FUNCTIONS = [{"type": "function", "function": {"name": name, "parameters": UNIT}} for name in _NAMES]
ITEMS = [{"type": "function", "name": name, "parameters": UNIT, "strict": True} for name in _NAMES]
BLOCKS = [{"name": name, "input_schema": UNIT} for name in _NAMES]


def is_unit(value: Any) -> bool:
    """Return whether a value fits the schema."""
    return (
        isinstance(value, dict)
        and sorted(value) == ["exact", "unit"]
        and value["unit"] in ("C", "F")
        and type(value["exact"]) is bool
    )
