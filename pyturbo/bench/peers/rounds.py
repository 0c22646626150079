"""Measure contenders in turns, and summarise the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from pyturbo.bench.peers.contender import Contender

PAUSE = 0.02  # seconds before a turn, in which spinning threads go to sleep
LIMIT = 150.0  # seconds after which no further round starts

Tell = Callable[[str], None]

#: Measures a contender in a round, which counts from 0.
Turn = Callable[[Contender, int], float | None]


@dataclass
class Speeds:
    """The figures of one contender, one per round until it fails."""

    name: str
    rounds: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def best(self) -> float | None:
        return max(self.rounds, default=None)

    @property
    def median(self) -> float | None:
        return median(self.rounds) if self.rounds else None


def ratio(ours: Speeds, theirs: Speeds) -> float | None:
    """Return the median ratio over the rounds that both have completed."""
    ratios = [a / b for a, b in zip(ours.rounds, theirs.rounds)]
    return median(ratios) if ratios else None


def in_turns(contenders: Sequence[Contender], rounds: int, turn: Turn, tell: Tell) -> list[Speeds]:
    """Run `turn` for each contender in every round; every other round goes in reverse order."""
    speeds = {contender.name: Speeds(contender.name) for contender in contenders}
    begin = time.monotonic()
    for i in range(rounds):
        for contender in contenders if i % 2 == 0 else reversed(contenders):
            if contender.failure:
                continue
            tell(f"round {i + 1} of {rounds}: {contender.name}")
            time.sleep(PAUSE)
            figure = turn(contender, i)
            if figure is not None:
                speeds[contender.name].rounds.append(figure)
        if time.monotonic() - begin > LIMIT:
            break
    for contender in contenders:
        speeds[contender.name].failure = contender.failure
    return list(speeds.values())


def decoding(context: int, tokens: int, starts: Sequence[int] = (), conversations: int = 1) -> Turn:
    """Return a turn that measures decoding in tokens per second, of all `conversations` together.

    `starts` has the first token of each round in the text; without it all rounds read the same tokens.
    """

    def turn(contender: Contender, number: int) -> float | None:
        before, count = contender.portion(context), contender.portion(tokens)
        first = starts[number] if starts else 0
        options = {"conversations": conversations} if conversations > 1 else {}
        seconds = contender.seconds("decode", first=first, context=before, tokens=count, **options)
        return None if seconds is None else conversations * count / seconds

    return turn


def prefilling(tokens: int, starts: Sequence[int] = ()) -> Turn:
    """Return a turn that measures prefill in tokens per second, with `starts` as in `decoding`."""

    def turn(contender: Contender, number: int) -> float | None:
        count = contender.portion(tokens)
        seconds = contender.seconds("prefill", first=starts[number] if starts else 0, tokens=count)
        return None if seconds is None else count / seconds

    return turn
