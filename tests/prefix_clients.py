"""A client that sends whole conversations, each time to a new session, and a witness of all states it saw.

The witness keeps a copy of every state that was given to a store. What a store restores must have the bits of
one of these, whatever happened in between: that is what a store promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.session import Session
from pyturbo.model import Model

LOGITS = 1  # the number of the stretch with logits among those of a state


def with_chunks(model: Model, chunk: int, single: int = 2) -> Model:
    """Have a model read up to `chunk` tokens at once."""
    model.runner.traits = model.runner.traits._replace(chunk=chunk, single=single)
    return model


def contents(session: Session) -> list[bytes]:
    """The bytes of a state that are in use, piece by piece."""
    state = session._state
    return [stretch.numpy().tobytes() for stretch in state.layout.used(state.block, session.position)]


class Client:
    """Answers prompts by way of a store, and checks what it restores.

    Attributes:
        store: The store.
        cached: How many tokens of the last prompt it had.
        read: How many tokens all sessions have read, prompts and replies together.
    """

    def __init__(self, model: Model, store: PrefixStore, context: int, *, cut: bool) -> None:
        """`cut`: every position can be restored, since states have rows for each token and logits only."""
        self.model, self.context, self._cut = model, context, cut
        self.cached = self.read = 0
        self._seen: list[tuple[list[int], list[bytes]]] = []
        self.use(store)

    def use(self, store: PrefixStore) -> None:
        """Go on with another store."""
        keep = store.keep

        def witnessed(session: Session, **options: Any) -> None:
            self._seen.append((session.tokens.tolist(), contents(session)))
            keep(session, **options)

        store.keep = witnessed  # type: ignore[method-assign]
        self.store = store

    def reply(self, ids: Sequence[int], count: int) -> list[int]:
        """Read a conversation and go on with `count` tokens, the likeliest each time."""
        session = self.model.session(self.context)
        given = self.store.restore(session, ids)
        self.cached = session.position
        assert [*session.tokens.tolist(), *session.pending] == list(ids[:given])
        if self.cached:
            self._check(session)
        if unread := [*session.pending, *ids[given:]]:
            self.store.read(session, unread)
        replied = greedy(session, count)
        self.store.keep(session)
        assert self.store.nbytes <= self.store.max_bytes
        self.read += session.position - self.cached
        return replied

    def _check(self, session: Session) -> None:
        """Require that the session has the state of one that was kept."""
        tokens, got = session.tokens.tolist(), contents(session)
        for others, state in self._seen:
            if self._cut and others[: len(tokens)] == tokens:
                same = (want.startswith(part) for part, want in zip(got, state))
                if all(equal or number == LOGITS for number, equal in enumerate(same)):
                    return
            elif others == tokens and state == got:
                return
        raise AssertionError(f"no session had this state after {len(tokens)} tokens")


def greedy(session: Session, count: int) -> list[int]:
    """Go on with the likeliest tokens. The last one is not read."""
    replied = [int(session.logits.argmax())]
    while len(replied) < count:
        replied.append(int(session.step(replied[-1]).argmax()))
    return replied


def anew(model: Model, context: int, ids: Sequence[int], count: int) -> list[int]:
    """Return the reply of a session that reads everything itself."""
    session = model.session(context)
    session.prefill(ids)
    return greedy(session, count)
