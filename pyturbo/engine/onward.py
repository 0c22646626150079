"""Steps that a device begins with a token that it has chosen itself, before the host has seen that."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pyturbo import ops
from pyturbo._device import Device
from pyturbo._sampling import TopLogits
from pyturbo.engine.top_memory import TopMemory, finds_top
from pyturbo.layers.decoder import Decoder
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol

_TURNS = 2  # the next replay runs while the host reads what one has found


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
    """Memory for what each step finds, and for the rule by which it chooses the next token.

    Replays take turns with two rows, so that the host reads one while the next replay runs. Whoever calls
    `begin` holds the program until `end`.

    Attributes:
        known: How many of the largest logits a step finds.
        number: That of the last replay.
    """

    #: Symbols of the program with their largest values: the row, and whether a token is chosen.
    SYMBOLS: ClassVar = {"turn": _TURNS - 1, "chooses": 1}

    def __init__(self, device: Device, vocab: int) -> None:
        self.known = min(device.traits.top_logits, vocab)
        self._device, turn = device, symbol("turn")
        self._top = TopMemory(device, self.known, vocab, _TURNS, 1, turn)
        words = device.shared(_TURNS * (ops.RULE_WORDS + 1), np.uint32)
        rules = words.view((_TURNS, ops.RULE_WORDS))
        tokens = words.view(_TURNS, np.int32, offset=rules.nbytes)
        self._rules, self._tokens = rules.numpy(), tokens.numpy()
        self._rule: Any = Tensor(rules, rules.shape, rules.dtype).rows(turn).reshape(ops.RULE_WORDS)
        self._token = Tensor(tokens, tokens.shape, tokens.dtype).rows(turn)
        self.number = 0
        self._marks = [0] * _TURNS  # behind the last replay of each turn

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
        self._device.wait(self._marks[self._next])
        if rule is not None:
            self._rules[self._next] = rule
        self.number += 1
        return {"turn": self._next}

    @property
    def _next(self) -> int:
        """The turn of the next replay."""
        return (self.number + 1) % _TURNS

    def end(self) -> int:
        """Note that the replay was given to the device; return its number."""
        self._marks[self.number % _TURNS] = self._device.mark()
        return self.number

    def last(self) -> TopLogits:
        """Return the largest logits of the last replay, which is over."""
        return self._top.read(self.number % _TURNS)

    def found(self, number: int) -> Found | None:
        """Wait for a replay; return what it has found, or None if others have taken its row since."""
        turn = number % _TURNS
        if number <= self.number - _TURNS:
            self._device.synchronize()
            return None
        self._device.wait(self._marks[turn])
        return Found(self._top.read(turn), int(self._tokens[turn]))


def onward(device: Device, network: Decoder) -> Onward | None:
    """Return the memory if programs of the device find the largest logits."""
    return Onward(device, network.vocab) if finds_top(device, network) else None
