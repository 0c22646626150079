"""Steps that a device begins with a token that it has chosen itself, before the host has seen that."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pyturbo import ops
from pyturbo._device import Device
from pyturbo._fork import OwnProcess
from pyturbo._sampling import TopLogits
from pyturbo.engine.top_memory import TopMemory
from pyturbo.errors import ArgumentError
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol

_TURNS = 2  # the next step runs while the host reads what one has found

#: How a token is chosen; see `ops.choice_rule`.
Rule = NDArray[np.uint32]


class Rules(Protocol):
    """Says by which rules the next tokens of a reply are drawn."""

    def rule(self, number: int, known: int) -> Rule | None:
        """Return the rule of one of the next draws, counted from 1, from the `known` largest logits."""


class Found(NamedTuple):
    """What a step has found.

    Attributes:
        top: The largest logits.
        token: The token that it has chosen, if it had a rule.
    """

    top: TopLogits
    token: int


class Onward:
    """Memory for what each step of a program finds, and for the rule by which it chooses the next token.

    Replays take turns with two rows. Whoever calls `begin` holds the program until the replay is given to the
    device.

    Attributes:
        known: How many of the largest logits a step finds.
    """

    #: Symbols of the program with their largest values: the row, and whether a token is chosen.
    SYMBOLS: ClassVar = {"turn": _TURNS - 1, "chooses": 1}

    def __init__(self, device: Device, vocab: int) -> None:
        self.known = min(device.traits.top_logits, vocab)
        self.device, turn = device, symbol("turn")
        self._top = TopMemory(device, self.known, vocab, _TURNS, 1, turn)
        words = device.shared(_TURNS * (ops.RULE_WORDS + 1), np.uint32)
        rules = words.view((_TURNS, ops.RULE_WORDS))
        tokens = words.view(_TURNS, np.int32, offset=rules.nbytes)
        self._rules, self._tokens = rules.numpy(), tokens.numpy()
        self._rule: Any = Tensor(rules, rules.shape, rules.dtype).rows(turn).reshape(ops.RULE_WORDS)
        self._token = Tensor(tokens, tokens.shape, tokens.dtype).rows(turn)
        self._turn = 0  # of the last replay
        self._marks = [0] * _TURNS  # after the last replay of each turn
        self._begun: list[weakref.ref[Begun] | None] = [None] * _TURNS  # these replays

    def record(self, recorder: Recorder, logits: Any, next_token: Tensor) -> None:
        """Record the launches that find the largest logits, and the one that chooses the next token."""
        found: Any = self._top.record(recorder, logits)
        values, tokens = (each.reshape(self.known) for each in found)
        with recorder.when("chooses"), recorder.into(next_token, self._token):
            ops.choose_token(values, tokens, self._rule)

    def symbols(self, rule: Rule | None = None) -> dict[str, int]:
        """Return the symbols of the next replay, which chooses a token if there is a rule for it."""
        return {"turn": self._next, "chooses": int(rule is not None)}

    def begin(self, rule: Rule | None = None) -> dict[str, int]:
        """Set the rule of the next replay; return the symbols that the one after it has instead."""
        turn, reference = self._next, self._begun[self._next]
        begun = None if reference is None else reference()
        if begun is not None:
            begun.found()  # while that is in the row
        self.device.wait(self._marks[turn])
        if rule is not None:
            self._rules[turn] = rule
        self._turn, self._begun[turn] = turn, None
        return {"turn": self._next}

    @property
    def _next(self) -> int:
        """The turn of the next replay."""
        return (self._turn + 1) % _TURNS

    def begun(self) -> Begun:
        """Return the replay that was given to the device, which may still be at work on it."""
        begun = Begun(self, self._turn, self.device.mark())
        self._marks[self._turn], self._begun[self._turn] = begun.mark, weakref.ref(begun)
        return begun

    def last(self) -> TopLogits:
        """Return the largest logits of the last replay, which is over."""
        return self._top.read(self._turn)

    def read(self, turn: int) -> Found:
        """Return what the last replay of a turn has found, which is over."""
        return Found(self._top.read(turn), int(self._tokens[turn]))


class Begun:
    """A step that was given to the device.

    Attributes:
        mark: The one after it in the work of the device.
    """

    def __init__(self, onward: Onward, turn: int, mark: int) -> None:
        self.mark, self._onward, self._turn = mark, onward, turn
        self._process = OwnProcess()
        self._found: Found | None = None

    def found(self) -> Found:
        """Wait for it, and return what it has found. In a child of fork() it is a StateError."""
        if self._found is None:
            self._process.require("a step under way")
            self._onward.device.wait(self.mark)
            self._found = self._onward.read(self._turn)
        return self._found


@dataclass
class Lead:
    """A token that the device has chosen and reads, or has read, before its reply asks for that.

    Attributes:
        step: What reads it.
        end: The position after it.
        drawn_from: The largest logits that it was drawn from.
        settled: Whether somebody has waited for the step, and may have changed its logits.
    """

    step: Begun
    end: int
    drawn_from: TopLogits
    settled: bool = False

    def choice(self, tokens: NDArray[np.int32], drawn: tuple[int, float] | None) -> tuple[int, float]:
        """Return the token that the device has chosen, the last of these, with its logprob.

        The host has `drawn` the same, but at borders that roundings move.
        """
        token, top = int(tokens[-1]), self.drawn_from
        if drawn is None:
            raise ArgumentError(
                "sample: logits: expected finite values or -inf, and a token that may be drawn, got "
                f"{top.largest} as the largest"
            )
        return drawn if token == drawn[0] else (token, dict(top.logprobs(len(top)) or ())[token])
