"""pyturbo as a contender."""

from __future__ import annotations

import time

from pyturbo.bench.peers.child import token_ids
from pyturbo.model import Model
from pyturbo.model import load as load_model


class PyturboRunner:
    def __init__(self, model: Model, room: int) -> None:
        self._model, self._room = model, room
        self._ids = token_ids(model.network.vocab, room)

    @property
    def facts(self) -> dict[str, str]:
        return {"kernels": str(self._model.device.properties["kernels"])}

    def prefill(self, tokens: int) -> float:
        session = self._model.session(self._room)
        begin = time.perf_counter()
        session.prefill(self._ids[:tokens])
        return time.perf_counter() - begin

    def decode(self, context: int, tokens: int) -> float:
        session = self._model.session(self._room)
        session.prefill(self._ids[:context])
        ids = self._ids[context : context + tokens].tolist()
        begin = time.perf_counter()
        for token in ids:
            session.step(token)
        return time.perf_counter() - begin


def load(path: str, threads: int, room: int, precision: str) -> PyturboRunner:
    runner = PyturboRunner(load_model(path, "cpu", threads=threads, precision=precision), room)
    runner.prefill(room - 1)
    runner.decode(1, 1)
    return runner
