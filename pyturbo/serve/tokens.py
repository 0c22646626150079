"""POST /tokenize and POST /detokenize."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from pyturbo._messages import shown
from pyturbo.serve.requests.asked import Asked, prompt_ids
from pyturbo.serve.requests.body import Fields, read_body
from pyturbo.serve.requests.messages import checked_messages, refusal
from pyturbo.serve.server_state import state_of


class TextFields(Fields):
    """A text, which llama.cpp calls content and vLLM prompt, or the messages of a chat with their tools."""

    model: str | None = None
    text: str | None = None
    content: str | None = None
    prompt: str | None = None
    add_special: bool = False
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class TokenFields(Fields):
    """Token ids."""

    model: str | None = None
    tokens: list[int]


async def tokenize(request: Request) -> JSONResponse:
    """Return the tokens of a text, or of messages as the model reads them."""
    state = state_of(request)
    fields = await read_body(request, TextFields, state.settings)
    texts = [each for each in (fields.text, fields.content, fields.prompt) if each is not None]
    if len(texts) + (fields.messages is not None) != 1:
        raise refusal("text", "expected one of text, content, prompt and messages")
    async with state.shelf.use(fields.model) as served:

        def encoded() -> list[int]:
            if fields.messages is not None:
                return prompt_ids(served, Asked(checked_messages(fields.messages), {}, tools=fields.tools))
            return served.model.tokenizer.encode(texts[0], fields.add_special)

        tokens = await state.preparation.run(served, encoded)
    return JSONResponse({"tokens": tokens, "count": len(tokens)})


async def detokenize(request: Request) -> JSONResponse:
    """Return the text of tokens, special ones too."""
    state = state_of(request)
    fields = await read_body(request, TokenFields, state.settings)
    async with state.shelf.use(fields.model) as served:
        vocab = served.model.tokenizer.vocab_size
        if wrong := [token for token in fields.tokens if not 0 <= token < vocab]:
            raise refusal("tokens", f"expected 0 to {vocab - 1}, got {shown(wrong[0])}")
        text = await state.preparation.run(
            served, lambda: served.model.tokenizer.decode(fields.tokens, False)
        )
    return JSONResponse({"text": text, "content": text, "prompt": text})
