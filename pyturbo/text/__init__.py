"""Text in and out: tokenizers, incremental decoding, stop strings, chat templates and dialects of replies."""

from __future__ import annotations

from pyturbo.text import dialects
from pyturbo.text.chat_text import ChatText
from pyturbo.text.detokenizer import Detokenizer
from pyturbo.text.stop_strings import StopStrings
from pyturbo.text.tokenizer import Tokenizer

__all__ = ["ChatText", "Detokenizer", "StopStrings", "Tokenizer", "dialects"]
