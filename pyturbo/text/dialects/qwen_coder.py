"""Calls of Qwen3-Coder and Qwen3.5: one tag for each argument, between <tool_call> and </tool_call>."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pyturbo.text.dialects.function_call import END, FUNCTION, PARAMETER, PARAMETER_END
from pyturbo.text.dialects.grammar import Grammar
from pyturbo.text.dialects.tagged import Hermes
from pyturbo.text.dialects.text_rules import text_rules
from pyturbo.text.dialects.tools import Tool
from pyturbo.text.dialects.typed_text import is_text, may_be_text, text_of_value


class QwenCoder(Hermes):
    """Calls such as <tool_call><function=name><parameter=key>value</parameter></function></tool_call>."""

    name: ClassVar[str] = "qwen_coder"

    def _written_call(self, name: str, values: dict[str, Any]) -> str:
        parameters = "".join(
            f"{PARAMETER}{key}>\n{text_of_value(value)}\n{PARAMETER_END}\n" for key, value in values.items()
        )
        return f"{FUNCTION}{name}>\n{parameters}{END}"

    def _call_rule(self, grammar: Grammar, number: int, tool: Tool) -> str:
        required = tool.parameters.get("required")
        needed = set(required) if isinstance(required, (list, tuple)) else set()
        parts = [grammar.literal(f"{FUNCTION}{tool.name}>\n")]
        for i, (key, schema) in enumerate(tool.properties.items()):
            schema = schema if isinstance(schema, Mapping) else {}
            value = self._value_rule(grammar, f"value_{number}_{i}", schema, tool)
            parameter = grammar.rule(
                f"parameter_{number}_{i}",
                f"{grammar.literal(f'{PARAMETER}{key}>' + chr(10))} {value} {grammar.literal(chr(10))}",
            )
            parts.append(parameter if key in needed else f"{parameter}?")
        return " ".join([*parts, grammar.literal(END)])

    def _value_rule(self, grammar: Grammar, name: str, schema: Mapping[str, Any], tool: Tool) -> str:
        """Return what matches a value and the tag after it."""
        known = [schema["const"]] if "const" in schema and is_text(schema) else schema.get("enum")
        if isinstance(known, (list, tuple)) and known:
            choices = " | ".join(grammar.literal(text_of_value(value)) for value in known)
            return f"({choices}) {grammar.literal(chr(10) + PARAMETER_END)}"
        if is_text(schema) and (rules := text_rules(schema, strict=tool.strict)):
            return grammar.text(name, rules, PARAMETER_END)
        if is_text(schema) or may_be_text(schema):
            return grammar.until(name, PARAMETER_END)
        return f"{grammar.json(schema, tool)} {grammar.literal(chr(10) + PARAMETER_END)}"
