"""Whether a value of a JSON schema can end: one whose every value holds another of its kind cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PASSES = 100  # a schema that takes more is taken for one that can end


def can_end(schema: Any) -> bool:
    """Return whether some value of a schema is finite, as far as its references and required parts say.

    Examples:
        >>> from pyturbo.text.finite import can_end
        >>> item = {"type": "object", "properties": {"next": {"$ref": "#"}}}
        >>> can_end(item), can_end({**item, "required": ["next"]})
        (True, False)
    """
    found = _Schema(schema)
    try:
        for _ in range(_PASSES):
            if found.ends(schema):
                return True
            if not found.learn():
                return False
    except RecursionError:
        pass
    return True


class _Schema:
    """The whole schema, in which references are looked up, and what is known of them."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._met: dict[str, bool] = {}  # references, and whether what they name can end, as far as is known

    def learn(self) -> bool:
        """Look at all references that were met; return whether that told anything new."""
        before = dict(self._met)
        for name, known in before.items():
            self._met[name] = known or self.ends(self._at(name))
        return self._met != before

    def ends(self, schema: Any) -> bool:
        """Return whether a value can end, by what is known of the references in its schema."""
        if not isinstance(schema, Mapping):
            return True
        name = schema.get("$ref")
        if isinstance(name, str) and not self._met.setdefault(name, False):
            return False
        if "enum" in schema or "const" in schema:
            return True
        if not all(self.ends(part) for part in _list(schema.get("allOf"))):
            return False
        for choices in (_list(schema.get("anyOf")), _list(schema.get("oneOf"))):
            if choices and not any(self.ends(choice) for choice in choices):
                return False
        kind = schema.get("type")
        kinds = kind if isinstance(kind, Sequence) and not isinstance(kind, str) else [kind]
        return any(self._kind_ends(each, schema) for each in kinds)

    def _kind_ends(self, kind: Any, schema: Mapping[str, Any]) -> bool:
        if kind == "object":
            properties = schema.get("properties")
            properties = properties if isinstance(properties, Mapping) else {}
            needed = [name for name in _list(schema.get("required")) if isinstance(name, str)]
            rest = None if "patternProperties" in schema else schema.get("additionalProperties")
            return all(self.ends(properties.get(name, rest)) for name in needed)
        if kind == "array":
            least, first = schema.get("minItems"), _list(schema.get("prefixItems"))
            count = least if isinstance(least, int) else 0
            items = [*first[:count], *([schema.get("items")] if count > len(first) else [])]
            return all(self.ends(item) for item in items)
        return True

    def _at(self, reference: str) -> Any:
        """Return what a reference within the schema names; None, which any value fits, for others."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        place = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, Mapping) else None
        return place


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
