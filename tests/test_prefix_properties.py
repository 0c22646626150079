"""Random conversations by way of a prefix store: edits, branches, regenerations, evictions and restarts.

Whatever happens, a restored state has the bits of a state that was kept (tests/prefix_clients.py), and the
store has no more bytes than it may. With keys and values in float32 the replies are also those of sessions
that read everything themselves. With fewer bits they need not be: it matters which tokens are read together.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefix_clients import Client, anew, with_chunks
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.model import Model, load
from tiny_configs import MODELS
from tiny_models import write_mlx

pytestmark = pytest.mark.slow

CONTEXT = 200
#: Models, and whether every position of their plain caches can be restored.
KINDS = {"qwen3": True, "deepseek_v3": True, "qwen3_next": False, "qwen2_windows": False, "gpt_oss": False}

#: A conversation by its number, how much of it is kept, how many tokens are said, and how many are replied.
TURNS = st.tuples(st.just("turn"), st.integers(0, 2), st.floats(0, 1), st.integers(1, 40), st.integers(1, 12))
#: The same prompt once more; another conversation with the same beginning; time that passes; a new process.
OTHERS = st.tuples(st.sampled_from(("again", "branch", "wait", "restart", "regenerate")), st.integers(0, 2))

STEPS = st.lists(st.one_of(TURNS, TURNS, OTHERS), min_size=5, max_size=14)


class Chats:
    """Three conversations, as lists of tokens."""

    def __init__(self, model: Model, seed: int) -> None:
        vocab = model.network.vocab
        self._rng, self._vocab = np.random.default_rng(seed), vocab
        self.system = self.tokens(20)
        self.all = [list(self.system) for _ in range(3)]

    def tokens(self, count: int) -> list[int]:
        return [int(token) for token in self._rng.integers(0, self._vocab, count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, kv: str) -> Model:
    path = folder / name
    if not path.exists():
        write_mlx(MODELS[name], path)
    return with_chunks(load(path, "cpu", kv=kv), chunk=16)


@pytest.mark.parametrize("kv", ["f32", "f16", "turbo8", "turbo4v2"])
@pytest.mark.parametrize("name", KINDS)
def test_restored_states_are_states_that_were_kept(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, kv: str
) -> None:
    model = model_of(folder, name, kv)
    cut = KINDS[name] and kv.startswith("f")
    largest = largest_of(model)
    runs = iter(range(10**6))

    @settings(max_examples=6, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        st.integers(0, 99),
        st.floats(0.3, 4),
        st.booleans(),
        st.lists(st.one_of(TURNS, TURNS, OTHERS), min_size=5, max_size=14),
    )
    def check(seed: int, room: float, on_disk: bool, steps: list[Any]) -> None:
        now = [0.0]
        place = {"folder": tmp_path / str(next(runs)), "max_disk_bytes": 3 * largest} if on_disk else {}

        def store() -> PrefixStore:
            return PrefixStore(model.runner, int(room * largest), clock=lambda: now[0], **place)

        client, chats = Client(model, store(), CONTEXT, cut=cut), Chats(model, seed)
        for kind, number, *rest in steps:
            chat = chats.all[number]
            now[0] += 1
            if kind == "branch":
                chats.all[number] = list(chats.all[(number + 1) % 3])
            elif kind == "wait":
                now[0] += 3000
            elif kind == "restart":
                client.use(store())
            elif kind == "again":
                answer(client, chat, 3, kv)
            elif kind == "regenerate":
                del chat[max(len(chats.system), len(chat) - 5) :]
                chat += answer(client, chat, 4, kv)
            else:
                kept, said, replied = rest
                del chat[max(1, round(kept * len(chat))) :]
                if len(chat) + said + replied <= CONTEXT:
                    chat += chats.tokens(said)
                    chat += answer(client, chat, replied, kv)

    with caplog.at_level(logging.WARNING, "pyturbo"):
        check()
    assert not caplog.records


def answer(client: Client, ids: list[int], count: int, kv: str) -> list[int]:
    count = min(count, CONTEXT - len(ids))
    if count < 1:
        return []
    replied = client.reply(ids, count)
    if kv == "f32":
        assert replied == anew(client.model, CONTEXT, ids, count)
    return replied


def largest_of(model: Model) -> int:
    """About the bytes that a store takes for one conversation of 100 tokens."""
    store, session = PrefixStore(model.runner, 1 << 40), model.session(CONTEXT)
    store.read(session, range(100))
    return store.nbytes
