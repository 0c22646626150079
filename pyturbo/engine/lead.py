"""How a session goes onward: the device begins to read a token before the host has seen it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyturbo._sampling import TopLogits
from pyturbo.engine.graph import Graph
from pyturbo.engine.onward import Found, Rules
from pyturbo.engine.top_memory import finds_top
from pyturbo.errors import ArgumentError, TurboError

if TYPE_CHECKING:
    from pyturbo.engine.session import Session


class Begun(NamedTuple):
    """A step that the device may still be at work on.

    Attributes:
        graph: The program.
        number: That of the replay.
        end: The position after it.
    """

    graph: Graph
    number: int
    end: int

    def is_last_of(self, graph: Graph) -> bool:
        """Return whether no replay of that program has begun since."""
        return graph is self.graph and graph.onward is not None and graph.onward.number == self.number

    def found(self) -> Found | None:
        """Wait for it; return what it has found, if that is still there."""
        assert self.graph.onward is not None
        return self.graph.onward.found(self.number)


def can_lead(session: Session, rules: Rules, logprobs: int) -> bool:
    """Return whether the device can choose the tokens of a reply that lists `logprobs` likeliest ones."""
    runner = session._runner
    if not finds_top(runner.device, runner.network):
        return False
    if runner.experts is not None or session.timings is not None:  # the host has a part in each step
        return False
    known = min(runner.device.traits.top_logits, runner.network.vocab - 1)
    return logprobs <= known and rules.rule(1, known) is not None


def go_on(session: Session, token: int, begun: Begun | None, rules: Rules | None) -> Begun | None:
    """Have a session read a token, which the device has `begun` to read or not, and wait for its logits.

    With rules the device chooses the next token meanwhile, and begins to read that. Returns this step.
    """
    state, began, following = session._state, time.perf_counter(), None
    try:
        with session._runner.program(session.context, 1, "last") as (_, graph), session._failing():
            if begun is None:
                state.put(session.position, np.array([token], np.int32))
                begun = _begin(session, graph, rules, 1)
            if rules is not None and session.position < session.context and begun.is_last_of(graph):
                following = _begin(session, graph, rules, 2)
            found = begun.found()
            state.top = None if found is None else found.top
            if following is not None:
                assert found is not None
                state.tokens[begun.end] = found.token
    except BaseException:
        with suppress(TurboError):  # which is a later call's to tell
            session._runner.device.synchronize()
            state.refresh()  # whatever the device has read
        raise
    session.read_seconds += time.perf_counter() - began
    session.read_tokens += 1
    return following


def _begin(session: Session, graph: Graph, rules: Rules | None, number: int) -> Begun:
    """Begin to read the token at the position. The rule for the choice is that of one of the next draws."""
    assert graph.onward is not None
    rule = None if rules is None else rules.rule(number, graph.onward.known)
    session._state.changed()
    replay = graph.begin(session._state.block, session._cursor, rule)
    return Begun(graph, replay, session.position)


def chosen(tokens: NDArray[np.int32], top: TopLogits, drawn: tuple[int, float] | None) -> tuple[int, float]:
    """Return the token that the device has chosen, the last of these, with its logprob.

    The host has `drawn` the same, but at borders that roundings move.
    """
    token = int(tokens[-1])
    if drawn is not None and token == drawn[0]:
        return drawn
    logprobs = dict(top.logprobs(len(top)) or ())
    if token not in logprobs:
        raise ArgumentError(f"sample: logits: expected finite values or -inf, got {top.largest} among them")
    return token, logprobs[token]
