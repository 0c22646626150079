"""Dialects of replies: how families of models write thoughts and calls of tools.

`dialect_of` finds the dialect of a model. Its parser takes a reply apart while it arrives, `compose` puts one
together, and `grammar` describes replies whose calls always parse.

Nothing of a reply is lost: what looks like a call and is none is text, with its markers; a call that is cut
off, or malformed after its name, is a `ToolCall` that is not complete, and the text after the fault is text.
Only markers vanish, and the white space next to them.
"""

from __future__ import annotations

from pyturbo.text.dialects.detect import MARKERS, dialect_of
from pyturbo.text.dialects.dialect import Dialect
from pyturbo.text.dialects.grammar import ReplyGrammar
from pyturbo.text.dialects.message import Message, ToolCall
from pyturbo.text.dialects.parser import ReplyParser, repeated_ids
from pyturbo.text.dialects.parts import (
    Part,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    joined,
)
from pyturbo.text.dialects.reply_text import ReplyText
from pyturbo.text.dialects.tools import Tools, as_functions

__all__ = [
    "MARKERS",
    "Dialect",
    "Message",
    "Part",
    "Reasoning",
    "ReplyGrammar",
    "ReplyParser",
    "ReplyText",
    "Text",
    "ToolCall",
    "ToolCallArguments",
    "ToolCallBegin",
    "ToolCallEnd",
    "Tools",
    "as_functions",
    "dialect_of",
    "joined",
    "repeated_ids",
]
