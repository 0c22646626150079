"""Every path and field of a server, and how it is treated: docs/supported.md is written from this."""

from __future__ import annotations

from serve.supported.chat import CHAT
from serve.supported.completions import COMPLETIONS, DETOKENIZE, EMBEDDINGS, TOKENIZE
from serve.supported.messages import COUNT_TOKENS, MESSAGES
from serve.supported.responses import RESPONSES
from serve.supported.rows import Api

APIS: tuple[Api, ...] = (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    MESSAGES,
    COUNT_TOKENS,
    EMBEDDINGS,
    TOKENIZE,
    DETOKENIZE,
)
