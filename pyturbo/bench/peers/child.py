"""The process of one contender: it answers requests, lines of JSON on standard input, on standard output.

``load`` comes first, and replies with the time and memory that it took. ``prefill`` reads `tokens` tokens
into an empty context, ``decode`` reads them one by one after `context` others, in several `conversations` at
once; both begin at token `first` of the text, and reply with seconds. Output of libraries goes to standard
error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Runner(Protocol):
    """A loaded model. The seconds that it returns do not include preparations.

    Attributes:
        load_seconds: The time until it could read text, without importing the engine and warming up.
        beside_weights: Bytes of state and scratch, if the engine says so.
    """

    load_seconds: float
    beside_weights: int

    @property
    def facts(self) -> dict[str, str]:
        """Facts that explain the figures, such as the kernels in use."""

    def prefill(self, first: int, tokens: int) -> float: ...

    def decode(self, first: int, context: int, tokens: int, conversations: int = 1) -> float: ...


def token_ids(vocab: int, count: int, ids: Sequence[int] | None = None) -> NDArray[np.int32]:
    """Return the text that every contender reads: `ids`, or `count` tokens."""
    if ids is None:
        return np.random.default_rng(0).integers(0, vocab, count).astype(np.int32)
    return np.array(ids, np.int32)


def tokens_of(ids: NDArray[np.int32], first: int, count: int, conversations: int) -> list[list[int]]:
    """Return what is read in each of `count` steps: other tokens in each conversation."""
    starts = first + len(ids) // conversations * np.arange(conversations)
    return [ids[(starts + i) % len(ids)].tolist() for i in range(count)]


def answer(kind: str, runner: Runner | None, request: dict[str, Any]) -> tuple[Runner | None, dict[str, Any]]:
    """Handle a request; return the runner for the next ones, and the reply."""
    options = dict(request)
    do = options.pop("do")
    if do == "load":
        try:
            runner = importlib.import_module(f"pyturbo.bench.peers.run_{kind}").load(**options)
        except ModuleNotFoundError as error:
            return None, {"missing": error.name}
        return runner, {"facts": runner.facts, "load": loaded(runner)} if runner else {}
    if runner is None:
        raise ValueError(f"{do}: expected a model to be loaded first")
    seconds = runner.prefill(**options) if do == "prefill" else runner.decode(**options)
    return runner, {"seconds": seconds}


def loaded(runner: Runner) -> dict[str, float]:
    """Return what loading took: seconds, and megabytes with pages of mapped files, now and at the most."""
    return {
        "seconds": runner.load_seconds,
        "beside weights": runner.beside_weights / 1e6,
        **resident_megabytes(),
    }


def resident_megabytes() -> dict[str, float]:
    """Return the memory of this process, with the pages of files that it has mapped; {} if unknown."""
    names = {"VmRSS": "resident", "VmHWM": "peak"}
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[key].split()[0]) * 1024 / 1e6 for key, name in names.items() if key in fields}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runner: Runner | None = None
    for line in sys.stdin:
        runner, reply = answer(sys.argv[1], runner, json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
