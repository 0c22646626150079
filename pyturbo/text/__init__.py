"""Text in and out: tokenizers, incremental decoding, stop strings and chat templates."""

from __future__ import annotations

from pyturbo.text.chat_text import ChatText
from pyturbo.text.detokenizer import Detokenizer
from pyturbo.text.stop_strings import StopStrings
from pyturbo.text.tokenizer import Tokenizer

__all__ = ["ChatText", "Detokenizer", "StopStrings", "Tokenizer"]
