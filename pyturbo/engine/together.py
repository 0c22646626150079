"""How conversations read: alone, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.session import Session


def read_alone(session: Session, ids: NDArray[np.int32]) -> None:
    """Read tokens of the vocabulary in a session that the caller holds."""
    session._advance_all(ids)


def step_together(sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """Read one token in each of several sessions of a model, for a caller that holds them all.

    Each has room for it. All weights are read once. If the replay fails, all sessions have failed.
    """
    if len(sessions) == 1:
        read_alone(sessions[0], np.array(tokens, np.int32))
        return
    ordered = sorted(zip(sessions, tokens), key=lambda pair: pair[0].context)  # few programs serve all orders
    ordered_sessions = [session for session, _ in ordered]
    states = [session._state for session in ordered_sessions]
    for session, token in ordered:
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
