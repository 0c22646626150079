"""How conversations read: alone, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.lead import read_on
from pyturbo.engine.mixed import Reading
from pyturbo.engine.onward import Rules
from pyturbo.engine.session import Session


def copy_into(session: Session, other: Session) -> None:
    """Make a session a copy of one with the same context. The caller holds both."""
    session._take(other)


def read_alone(session: Session, ids: NDArray[np.int32], rules: Rules | None = None) -> None:
    """Read tokens that a reply asks for in its session, which the caller holds, as `read_on` does."""
    read_on(session, ids, rules)


def leads(session: Session) -> bool:
    """Return whether a session has begun to read what its reply asks for; `read_alone` must be given that."""
    return session._leads is not None


def step_together(sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """Read one token in each of several sessions of a model, for a caller that holds them all.

    Each has room for it, and none leads. All weights are read once. If the replay fails, all sessions have
    failed.
    """
    if len(sessions) == 1:
        read_alone(sessions[0], np.array(tokens, np.int32))
        return
    ordered = sorted(zip(sessions, tokens), key=lambda pair: pair[0].context)  # few programs serve all orders
    ordered_sessions = [session for session, _ in ordered]
    states = [session._state for session in ordered_sessions]
    for session, token in ordered:
        assert not session._leads
        session._require_whole()
        session._state.put(session.position, np.array([token], np.int32))
    with sessions[0]._runner.batch(tuple(session.context for session in ordered_sessions)) as graph:
        with ExitStack() as failing:
            for session in ordered_sessions:
                failing.enter_context(session._failing())
                session._state.changed()
            graph.run(states, [session._cursor for session in ordered_sessions])
        for i, state in enumerate(states):
            state.top = graph.top(i)


def read_together(
    sessions: Sequence[Session], pieces: Sequence[NDArray[np.int32]], ends: Sequence[bool], *, room: int = 0
) -> None:
    """Read a piece of tokens in each of several sessions, for a caller that holds them all.

    They have one context and room for their pieces, and none leads. Those of one token come first, then
    up to `runner.PROMPTS` others of at most `Runner.piece` tokens. A session has logits if its piece `ends`,
    as one token always does. A program that must be recorded for it gets room for steps of `room` sessions,
    which may come later. All weights are read once. If the replay fails, all sessions have failed.
    """
    readings = []
    for session, piece, last in zip(sessions, pieces, ends, strict=True):
        assert not session._leads
        session._require_whole()
        session._state.put(session.position, piece)
        readings.append(Reading(session._state, session._cursor, len(piece), last or len(piece) == 1))
    steps = sum(reading.tokens == 1 for reading in readings)
    runner, context = sessions[0]._runner, sessions[0].context
    with runner.mixed(context, max(steps, room), prompts=steps < len(readings)) as graph:
        with ExitStack() as failing:
            for session in sessions:
                failing.enter_context(session._failing())
                session._state.changed()
            graph.run(readings)
        for i, reading in enumerate(readings):
            if reading.ends:
                reading.state.top = graph.top(i)
