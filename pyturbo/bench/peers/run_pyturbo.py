"""pyturbo as a contender."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyturbo.bench.peers.child import token_ids, tokens_of
from pyturbo.engine.together import step_together
from pyturbo.model import Model
from pyturbo.model import load as load_model
from pyturbo.streaming import Policy


class PyturboRunner:
    def __init__(self, model: Model, room: int, ids: Sequence[int] | None, load_seconds: float = 0.0) -> None:
        self._model, self._room, self.load_seconds = model, room, load_seconds
        self._ids = token_ids(model.network.vocab, room, ids)

    @property
    def facts(self) -> dict[str, str]:
        return {"kernels": str(self._model.device.properties["kernels"])}

    @property
    def beside_weights(self) -> int:
        memory = self._model.session(self._room).memory()
        return memory.state + memory.scratch

    def prefill(self, first: int, tokens: int) -> float:
        session = self._model.session(self._room)
        begin = time.perf_counter()
        session.prefill(self._ids[first : first + tokens])
        return time.perf_counter() - begin

    def decode(self, first: int, context: int, tokens: int, conversations: int = 1) -> float:
        session = self._model.session(self._room)
        session.prefill(self._ids[first : first + context])
        sessions = [session, *(session.fork() for _ in range(conversations - 1))]
        rows = tokens_of(self._ids, first + context, tokens, conversations)
        if conversations > 1:
            self._model.runner.prepare_batch((self._room,) * conversations)
        begin = time.perf_counter()
        for row in rows:
            if conversations == 1:
                session.step(row[0])
            else:
                step_together(sessions, row)
        return time.perf_counter() - begin


def load(
    path: str,
    threads: int,
    room: int,
    precision: str,
    ids: Sequence[int] | None = None,
    conversations: int = 1,
    memory: int | None = None,
    mode: str | None = None,
) -> PyturboRunner:
    policy = None if mode is None else Policy(mode=mode)
    begin = time.perf_counter()
    model = load_model(path, "cpu", threads=threads, precision=precision, memory=memory, policy=policy)
    if model.has_tokenizer:
        _ = model.tokenizer  # made when it is first asked for
    runner = PyturboRunner(model, room, ids, time.perf_counter() - begin)
    runner.prefill(0, room - 1)
    runner.decode(0, 1, 1)
    return runner
