"""Text in and out: tokenizers, decoding, stop strings, constraints, chat templates, dialects of replies."""

from __future__ import annotations

from pyturbo.text import dialects
from pyturbo.text.chat_text import ChatText
from pyturbo.text.constraint import Constraint
from pyturbo.text.detokenizer import Detokenizer
from pyturbo.text.stop_strings import StopStrings
from pyturbo.text.tokenizer import Tokenizer

__all__ = ["ChatText", "Constraint", "Detokenizer", "StopStrings", "Tokenizer", "dialects"]
