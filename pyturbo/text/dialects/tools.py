"""The tools of a chat: functions that a reply may call, with a JSON schema of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError

#: As OpenAI's interface has them: {"type": "function", "function": {"name": ..., "parameters": ...}}.
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Tool:
    """A function that a reply may call.

    Attributes:
        name: Its name.
        parameters: The JSON schema of its arguments; without any it takes none.
        strict: Whether a call must fit all of the schema, or else be refused before it begins.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of an argument, if there is one."""
        schema = self.properties.get(name)
        return schema if isinstance(schema, Mapping) else None

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of all arguments."""
        properties = self.parameters.get("properties")
        return properties if isinstance(properties, Mapping) else {}


def as_functions(tools: Tools | None) -> list[Mapping[str, Any]] | None:
    """Return tools as templates take them, whose functions may have been given alone; None without any."""
    tools_of(tools)
    return [
        entry if "function" in entry else {"type": "function", "function": entry} for entry in tools or ()
    ] or None


def tools_of(tools: Tools | None) -> dict[str, Tool]:
    """Return tools by name. ArgumentError if one has no name, or a schema that is not an object.

    Examples:
        >>> from pyturbo.text.dialects.tools import tools_of
        >>> tools_of([{"type": "function", "function": {"name": "now"}}])
        {'now': Tool(name='now', parameters={}, strict=False)}
    """
    if tools is None:
        return {}
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise ArgumentError(f"tools: expected a list of tools, got {shown(tools)}")
    found: dict[str, Tool] = {}
    for i, entry in enumerate(tools):
        function = entry.get("function", entry) if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping):
            raise ArgumentError(f"tools[{i}]: expected a mapping with a function, got {shown(entry)}")
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"tools[{i}]: name: expected text, got {shown(name)}")
        if not (parameters is None or isinstance(parameters, Mapping)):
            raise ArgumentError(f"tools[{i}]: parameters: expected a JSON schema, got {shown(parameters)}")
        if name in found:
            raise ArgumentError(
                f"tools[{i}]: expected another name than {shown(name)}, which there is already"
            )
        found[name] = Tool(name, parameters or {}, function.get("strict") is True)
    return found
