"""A chat of several turns over one session."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from os import PathLike
from typing import Any

from pyturbo.errors import ArgumentError, FormatError, TurboError
from pyturbo.generation import Chunk, Stats
from pyturbo.model import Model

Message = dict[str, Any]

_ROLES = ("system", "user", "assistant")


class Conversation:
    """Messages, and a session that has read them. A turn reads only what is new.

    For each turn the template renders all messages. Where that begins with the text that the session has
    read, the rest is read; a template that changes what was said before, such as one that leaves out earlier
    thoughts, makes it begin anew, and `reread` then counts the tokens that had been read already.
    """

    def __init__(self, model: Model, context: int | None = None, system: str | None = None) -> None:
        if model.tokenizer.chat_template is None:
            raise ArgumentError("chat: the checkpoint has no chat template; it can only continue a text")
        self.model = model
        self.session = model.session(min(8192, model.max_context) if context is None else context)
        self.reread = 0
        self._system = system
        self._text: str | None = ""  # what the session has read; None where it stopped amid a prompt
        self.messages: list[Message] = self._first()

    def reply(self, text: str, *, stats: Stats | None = None, **options: Any) -> Generator[Chunk, None, None]:
        """Says `text`; the answer, one chunk a token. The options are those of :meth:`Model.stream`.

        What is wrong with them, or does not fit, is an error here and changes nothing. An answer that is not
        taken to its end, by closing it or by an interrupt, is part of the conversation as far as it came.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        rendered = self.model.tokenizer.chat(messages)
        ids = self._unread(rendered)
        end = self.session.position + len(self.session.pending) + len(ids)
        chunks = self.model.stream(ids, **options, session=self.session, stats=stats)
        return self._answer(messages, rendered, end, chunks)

    def reset(self) -> None:
        """Begins anew, with the system message alone."""
        self._begin_session()
        self.messages, self.reread = self._first(), 0

    def save(self, path: str | PathLike[str]) -> None:
        """One file: the session, with the messages among its notes."""
        self.session.notes = {"messages": self.messages, "text": self._text}
        self.session.save(path)

    def load(self, path: str | PathLike[str]) -> None:
        """Goes on exactly where :meth:`save` was called."""
        session = self.model.restore(path)
        messages, text = session.notes.get("messages"), session.notes.get("text")
        if not _are_messages(messages) or not (text is None or isinstance(text, str)):
            raise FormatError(f"{path}: expected the messages of a chat, found a session without them")
        self.session, self.messages, self._text, self.reread = session, list(messages or ()), text, 0

    def _first(self) -> list[Message]:
        return [] if self._system is None else [{"role": "system", "content": self._system}]

    def _begin_session(self) -> None:
        self.session, self._text = self.model.session(self.session.context), ""

    def _unread(self, rendered: str) -> list[int]:
        """The tokens of a rendered conversation that the session has not read yet."""
        encode, session = self.model.tokenizer.encode, self.session
        self.reread = 0
        if self._text is None or not rendered.startswith(self._text):
            ids = encode(rendered, special=False)
            if len(ids) > session.context:
                raise ArgumentError(
                    f"chat: expected at most {session.context} tokens, the context, got {len(ids)}"
                )
            self.reread = session.position
            self._begin_session()
            return ids
        ids = encode(rendered[len(self._text) :], special=False)
        if session.pending and session.pending[0] in self.model.eos_ids:
            if ids[:1] == session.pending:  # the template ends a reply as the model did
                return ids[1:]
            session.leave(None)
        return ids

    def _answer(
        self, messages: list[Message], rendered: str, end: int, chunks: Iterator[Chunk]
    ) -> Generator[Chunk, None, None]:
        """`end`: how many tokens there are up to where the answer begins."""
        text, finished = "", False
        try:
            for chunk in chunks:
                text += chunk.text
                finished = chunk.finish_reason is not None
                yield chunk
        except TurboError:
            self._text = None
            raise
        finally:
            if self.session.position < end:
                self._text = None
            elif self._text is not None:
                ids = [*map(int, self.session.tokens[end:]), *self.session.pending]
                ids = ids[:-1] if ids and ids[-1] in self.model.eos_ids else ids
                self._text = rendered + self._decode(ids, skip_special=False)
                text = text if finished else self._decode(ids, skip_special=True)
                self.messages = [*messages, {"role": "assistant", "content": text}]

    def _decode(self, ids: Sequence[int], skip_special: bool) -> str:
        detokenizer = self.model.tokenizer.detokenizer(skip_special, continues=True)
        return "".join([*map(detokenizer.add, ids), detokenizer.finish()])


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
        for message in value
    )
