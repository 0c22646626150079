"""How a session leads: the device begins to read a token of its reply before the host has seen that."""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.graph import Graph
from pyturbo.engine.onward import Begun, Lead, Rules
from pyturbo.engine.session import Session
from pyturbo.engine.top_memory import finds_top
from pyturbo.errors import TurboError


def can_lead(session: Session, rules: Rules, logprobs: int) -> bool:
    """Return whether the device can choose the tokens of a reply that lists `logprobs` likeliest ones."""
    runner = session._runner
    if not finds_top(runner.device, runner.network) or runner.experts is not None:
        return False
    known = min(runner.device.traits.top_logits, runner.network.vocab - 1)
    return logprobs <= known and rules.rule(1, known) is not None


def read_on(session: Session, ids: NDArray[np.int32], rules: Rules | None) -> None:
    """Have a session read tokens that its reply asks for. If it leads, it has begun to read the only one.

    With rules, by which the tokens after a single one are drawn, it may lead afterwards. The caller holds it.
    """
    lead = session._leads
    if lead is None and (rules is None or len(ids) != 1):
        session._advance_all(ids)
        return
    session._guard.check()
    if lead is not None and lead.settled:
        session._lead = None
    else:
        go_on(session, int(ids[0]), rules)


def go_on(session: Session, token: int, rules: Rules | None) -> None:
    """Have a session read a token of its reply, unless it leads, and wait for the logits.

    With rules the device chooses the next token meanwhile, and begins to read that: the session leads then.
    """
    try:
        _go_on(session, token, rules)
    except BaseException:
        session._lead = None
        with suppress(TurboError):  # which a later call will tell
            session._runner.device.synchronize()
            session._state.refresh()  # with what the device has read
        raise


def _go_on(session: Session, token: int, rules: Rules | None) -> None:
    began, state, lead = time.perf_counter(), session._state, session._leads
    if lead is None:
        session._require_room(1)
    with session._runner.program(session.context, 1, "last") as (_, graph), session._failing():
        if lead is None:
            state.put(session.position, np.array([token], np.int32))
        step = _begin(session, graph, rules, 1) if lead is None else lead.step
        if rules is None or session.position == session.context:
            session._lead, state.top = None, step.found().top
        else:
            following = _begin(session, graph, rules, 2)
            found = step.found()
            state.tokens[session.position - 1] = found.token
            session._lead = Lead(following, session.position, found.top)
    session.read_seconds += time.perf_counter() - began
    session.read_tokens += 1


def _begin(session: Session, graph: Graph, rules: Rules | None, number: int) -> Begun:
    """Begin to read the token at the position. The rule for the choice is that of one of the next draws."""
    assert graph.onward is not None
    rule = None if rules is None else rules.rule(number, graph.onward.known)
    assert (rule is None) == (rules is None)  # as can_lead has found of the first
    session._state.changed()
    return graph.begin(session._state.block, session._cursor, rule)
