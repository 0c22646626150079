"""POST /v1/completions: text that goes on, as OpenAI's clients speak it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.types import ASGIApp

from pyturbo.engine.generation import Chunk
from pyturbo.serve.openai.choice_writer import Choice, ChoiceWriter
from pyturbo.serve.openai.sampling_fields import IGNORED, SamplingFields
from pyturbo.serve.replies import accounts
from pyturbo.serve.replies.accounts import Places
from pyturbo.serve.replies.replies import Event, Replies
from pyturbo.serve.requests.asked import Asked
from pyturbo.serve.requests.body import read_body
from pyturbo.serve.requests.messages import refusal
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.shelf import Served


class CompletionFields(SamplingFields):
    """The fields of a request."""

    prompt: str | list[int] | list[str]
    best_of: Literal[1] | None = None
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)

    def asked(self, served: Served, state: State) -> Asked:
        """Return what the request asks of a model."""
        if self.echo and self.logprobs is not None:
            raise refusal("echo", "expected none beside logprobs, which prompts do not have")
        options = self.options(state.settings) | {"logprobs": self.logprobs or 0}
        return Asked(self._prompt(), options, self.count(state.settings))

    def _prompt(self) -> str | list[int]:
        prompt: Any = self.prompt
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
            if len(prompt) > 1:
                raise refusal("prompt", "expected one text, got several; send a request for each")
            return str(prompt[0])
        return prompt  # type: ignore[no-any-return]

    def echoed(self, served: Served) -> str:
        """Return the text that stands before replies."""
        if not self.echo:
            return ""
        prompt = self._prompt()
        return prompt if isinstance(prompt, str) else served.model.tokenizer.decode(prompt)


async def completions(request: Request) -> ASGIApp:
    """Continue a text."""
    state = state_of(request)
    fields = await read_body(request, CompletionFields, state.settings, *IGNORED)
    return await state.reply(request, fields.model, fields.asked, _Writer(fields), stream=bool(fields.stream))


class _Writer(ChoiceWriter):
    """Writes texts, and what is added to them."""

    PREFIX, WHOLE, PIECE = "cmpl", "text_completion", "text_completion"

    def __init__(self, fields: CompletionFields) -> None:
        super().__init__(fields)
        self._fields = fields
        self._places: defaultdict[int, Places] = defaultdict(Places)  # of the tokens of each reply

    def whole_choice(self, served: Served, index: int, events: Sequence[Event]) -> Choice:
        chunks = _chunks(events)
        text = self._fields.echoed(served) + "".join(chunk.text for chunk in chunks)
        return self._choice(served, index, text, chunks, events[-1].finish)

    def first_choices(self, served: Served, replies: Replies) -> list[Choice]:
        echoed = self._fields.echoed(served)
        return [self._choice(served, i, echoed) for i in range(len(replies.streams))] if echoed else []

    def next_choices(self, served: Served, found: Event) -> list[Choice]:
        chunks = _chunks([found])
        text = "".join(chunk.text for chunk in chunks)
        if text or found.finish is not None or self._fields.logprobs is not None:
            return [self._choice(served, found.index, text, chunks, found.finish)]
        return []

    def _choice(
        self, served: Served, index: int, text: str, chunks: Sequence[Chunk] = (), finish: str | None = None
    ) -> Choice:
        logprobs = None
        if self._fields.logprobs is not None and chunks:
            logprobs = accounts.text_logprobs(served.model.tokenizer, chunks, self._places[index])
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _chunks(events: Sequence[Event]) -> list[Chunk]:
    return [found.chunk for found in events if found.chunk is not None]
