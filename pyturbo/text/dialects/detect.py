"""Finding the dialect of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.text.dialects import deepseek, think
from pyturbo.text.dialects.deepseek import DeepSeek
from pyturbo.text.dialects.dialect import Dialect
from pyturbo.text.dialects.harmony import Harmony
from pyturbo.text.dialects.llama3 import Llama3
from pyturbo.text.dialects.qwen_coder import QwenCoder
from pyturbo.text.dialects.tagged import Hermes

#: Every text that is a marker in some dialect.
MARKERS = tuple(
    dict.fromkeys(
        [think.OPEN, think.CLOSE]
        + [marker for each in (Hermes, DeepSeek, Harmony, Llama3) for marker in each.call_markers]
    )
)

_ARGUMENTS = re.compile(r'\\?"arguments\\?"')  # a key of JSON, in a string of the template or out of one


def dialect_of(template: str | None, special: Mapping[str, int] | None = None) -> Dialect:
    """Return the dialect of the model whose chat template this is.

    A template shows the form of calls, since it writes those of earlier turns. `special` has the ids of
    markers that are special tokens of the vocabulary; without a template they decide.

    Examples:
        >>> from pyturbo.text.dialects import dialect_of
        >>> dialect_of("<|start|>assistant<|channel|>final<|message|>").name
        'harmony'
        >>> dialect_of("{{ messages[0].content }}").name
        'plain'
    """
    if not (template is None or isinstance(template, str)):
        raise ArgumentError(f"dialect_of: template: expected text, got {shown(template)}")
    special = {} if special is None else special
    text = " ".join(special) if template is None else template
    thinks = think.CLOSE in text
    known = {marker: token for marker, token in special.items() if marker in MARKERS}

    def has(*parts: str) -> bool:
        return all(part in text for part in parts)

    if has("<|channel|>", "<|message|>"):
        return Harmony(False, known)
    if has(deepseek.CALLS, deepseek.SEPARATOR):
        return DeepSeek(thinks, known, fenced=has("```json"))
    if has("<tool_call>", "<function=", "<parameter="):
        return QwenCoder(thinks, known)
    if has("<tool_call>") and not has("<tool_calls>") and _ARGUMENTS.search(text):
        return Hermes(thinks, known)
    if has("<|start_header_id|>", '"parameters"') and not has("<function="):
        return Llama3(thinks, known)
    return Dialect(thinks, known)
