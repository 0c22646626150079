"""The prefix store in memory: what is restored, what is read, what is given up.

Random conversations are in tests/test_prefix_properties.py, files in tests/test_prefix_folder.py.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
import smollm2
from prefix_clients import Client, anew, contents, greedy, with_chunks
from pyturbo.engine.budget import HEADROOM, Budget
from pyturbo.engine.prefix_policy import Pace, value
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.session import Session
from pyturbo.engine.together import read_together
from pyturbo.errors import CancelledError, StateError
from pyturbo.layers.kv_cache import KV_FORMATS
from pyturbo.model import Model, load
from tiny_configs import MODELS
from tiny_models import write_mlx

CONTEXT = 120
KINDS = ("qwen3", "deepseek_v3", "qwen3_next", "qwen2_windows", "gpt_oss")
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 180, CONTEXT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, device: object = "cpu", kv: str = "f16", chunk: int = 8) -> Model:
    path = folder / name
    if not path.exists():
        write_mlx(MODELS[name], path)
    return with_chunks(load(path, device, kv=kv), chunk)  # type: ignore[arg-type]


def go_on(model: Model, kept: Session, context: int) -> None:
    """A session that was kept, and one that is restored with other room, have the same bits from here on."""
    store = PrefixStore(model.runner, 1 << 30)
    store.keep(kept)
    other = model.session(context)
    ids = [*kept.tokens.tolist(), 33, 34]
    assert store.restore(other, ids) == kept.position == other.position
    for token in (33, 34, 35, 36):
        assert other.step(token).tobytes() == kept.step(token).tobytes()


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("kv", [form.name for form in KV_FORMATS])
def test_every_device_goes_on_with_the_same_bits(folder: Path, device: pyturbo.Device, kv: str) -> None:
    model = model_of(folder, "qwen3_5_moe", device, kv)
    kept = model.session(24)
    kept.prefill(TOKENS[:9])
    kept.step(11)
    go_on(model, kept, 40)


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_device_restores_every_kind(folder: Path, device: pyturbo.Device, name: str) -> None:
    """Windows have gone round by then."""
    model = model_of(folder, name, device, "turbo4")
    kept = model.session(60)
    kept.prefill(TOKENS[:45])
    go_on(model, kept, 70)


@pytest.mark.parametrize("kv", [form.name for form in KV_FORMATS])
@pytest.mark.parametrize("name", KINDS)
def test_another_context_goes_on_with_the_same_bits(folder: Path, name: str, kv: str) -> None:
    model = model_of(folder, name, kv=kv)
    for count, here, there in ((5, 9, CONTEXT), (70, 75, CONTEXT), (70, CONTEXT, 74)):
        kept = model.session(here)
        kept.prefill(TOKENS[:count])
        go_on(model, kept, there)


def test_a_session_with_other_tokens_forgets_them(folder: Path) -> None:
    for name in KINDS:
        model = model_of(folder, name, kv="turbo8")
        store, first = PrefixStore(model.runner, 1 << 30), model.session(CONTEXT)
        store.read(first, TOKENS[:40])
        dirty = model.session(CONTEXT)
        dirty.prefill(TOKENS[::-1])
        assert store.restore(dirty, TOKENS[:50]) == 40
        assert contents(dirty) == contents(first)


def test_what_a_session_has_itself_is_kept_if_it_is_more(folder: Path) -> None:
    model = model_of(folder, "qwen3_next")
    store, short, long = PrefixStore(model.runner, 1 << 30), model.session(CONTEXT), model.session(CONTEXT)
    store.read(short, TOKENS[:20])
    long.prefill(TOKENS[:30])
    before = contents(long)
    assert store.restore(long, TOKENS[:40]) == 30
    assert contents(long) == before


def test_the_end_of_a_prompt_needs_no_token_again_if_its_logits_were_kept(folder: Path) -> None:
    read = {}
    for name in ("qwen3", "qwen3_next"):
        model = model_of(folder, name)
        client = Client(model, PrefixStore(model.runner, 1 << 30), CONTEXT, cut=name == "qwen3")
        first = client.reply(TOKENS[:21], 5)
        before = client.read
        assert client.reply(TOKENS[:21], 5) == first
        read[name] = client.read - before - 4
    assert read == {"qwen3": 1, "qwen3_next": 0}


@pytest.mark.parametrize("name", KINDS)
def test_fifty_turns_read_no_token_twice(folder: Path, name: str) -> None:
    model = with_chunks(model_of(folder, name, kv="f32"), chunk=16)
    client = Client(model, PrefixStore(model.runner, 1 << 30), 512, cut=name in ("qwen3", "deepseek_v3"))
    rng, ids = np.random.default_rng(5), []
    for _ in range(50):
        ids += [int(token) for token in rng.integers(0, 180, rng.integers(1, 8))]
        ids += client.reply(ids, int(rng.integers(1, 5)))
    assert client.read == len(ids) - 1  # the last token of the last reply was not read
    assert len(ids) > 250


def test_any_position_of_plain_rows_is_restored(folder: Path) -> None:
    model = model_of(folder, "qwen3", kv="f32")
    client = Client(model, PrefixStore(model.runner, 1 << 30), CONTEXT, cut=True)
    client.reply(TOKENS[:60], 3)
    for cut in (2, 17, 59):
        ids = [*TOKENS[:cut], TOKENS[cut] + 1, 7]
        assert client.reply(ids, 4) == anew(model, CONTEXT, ids, 4)
        assert client.cached == cut


def test_rows_are_kept_once(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    store = PrefixStore(model.runner, 1 << 30)
    for tail in (1, 2, 3):
        session = model.session(CONTEXT)
        given = store.restore(session, ids := [*TOKENS[:50], tail, tail])
        store.read(session, [*session.pending, *ids[given:]])
    row = model.session(1).memory().pieces
    assert store.nbytes == (50 + 3 * 2) * (row["k"] + row["v"])


def test_rows_with_other_bits_are_kept_beside_each_other(folder: Path) -> None:
    """Two conversations read the same tokens, one at once and one alone; each goes on with its own."""
    model = model_of(folder, "qwen3_next", kv="turbo4")
    store = PrefixStore(model.runner, 1 << 30)
    chunks, steps = model.session(CONTEXT), model.session(CONTEXT)
    chunks.prefill(TOKENS[:24])
    for token in TOKENS[:30]:
        steps.step(token)
    keys = [session.state["model.layers.3.self_attn.k"][:, :24].tobytes() for session in (chunks, steps)]
    assert keys[0] != keys[1]
    store.keep(chunks)
    store.keep(steps)
    for kept, ids in ((chunks, [*TOKENS[:24], 1]), (steps, TOKENS[:31])):
        session = model.session(CONTEXT)
        assert store.restore(session, ids) == kept.position
        assert contents(session) == contents(kept)


def test_a_shared_beginning_is_kept_when_the_second_conversation_leaves_it(folder: Path) -> None:
    """The third one begins there. The chunks of a prompt are larger than that beginning."""
    model = model_of(folder, "qwen3_next", kv="f32", chunk=64)
    client = Client(model, PrefixStore(model.runner, 1 << 30), CONTEXT, cut=False)
    cached = []
    for tail in (1, 2, 3):
        ids = [*TOKENS[:40], tail, *TOKENS[50:60]]
        assert client.reply(ids, 3) == anew(model, CONTEXT, ids, 3)
        cached.append(client.cached)
    assert cached == [0, 0, 40]


def test_a_long_prompt_is_kept_on_the_way(folder: Path) -> None:
    model = model_of(folder, "qwen3_next", kv="f32", chunk=16)
    client = Client(model, PrefixStore(model.runner, 1 << 30), CONTEXT, cut=False)
    client.reply(TOKENS[:100], 2)
    client.reply([*TOKENS[:70], 1], 2)
    assert client.cached == 64


def test_copies_on_the_way_take_little_of_time_and_memory() -> None:
    pace = Pace()
    assert pace.spacing(256, 4000, 10**6, 1 << 30) == 256
    pace.read(100, 1.0)  # 10 ms a token
    pace.copied(10**9, 1.0)
    assert pace.spacing(256, 4000, 10**8, 1 << 40) == 512  # 0.1 s are 2 % of the time of 500 tokens
    assert pace.spacing(256, 4000, 10**6, 16 * 10**6) == 1024  # four copies in a quarter of the memory
    assert value(100, 10, 0.0) == 2 * value(100, 10, 600.0) == 2 * value(50, 10, 0.0) == 10


def test_reading_that_is_shared_with_others_is_no_measurement(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    store = PrefixStore(model.runner, 1 << 30)
    sessions = [model.session(CONTEXT) for _ in range(2)]
    ids = model.runner.check_ids(TOKENS[: model.runner.piece])
    parts = [store.parts(session, ids) for session in sessions]
    read_together(sessions, [next(part) for part in parts], [True, True])
    assert all(next(part, None) is None for part in parts)
    assert store.pace.token is None
    assert store.pace.byte is not None
    store.read(model.session(CONTEXT), TOKENS[20:60])
    assert store.pace.token is not None
    assert store.pace.token > 0


def test_the_least_valuable_is_given_up_first(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    row = sum(model.session(1).memory().pieces[kind] for kind in ("k", "v"))
    now = [0.0]
    store = PrefixStore(model.runner, 100 * row, clock=lambda: now[0])
    chats = {name: [number, *TOKENS[:39]] for number, name in enumerate(("old", "used", "new"))}

    def known(name: str) -> int:
        return store.restore(model.session(CONTEXT), chats[name])

    for name in ("old", "used"):
        store.read(model.session(CONTEXT), chats[name])
        now[0] += 100
    assert known("used") == 40
    now[0] += 100
    store.read(model.session(CONTEXT), chats["new"])
    assert store.nbytes == 80 * row
    assert [known(name) for name in chats] == [0, 40, 40]


def test_what_does_not_fit_is_not_kept(folder: Path) -> None:
    for name in ("qwen3", "qwen3_next"):
        model = model_of(folder, name)
        client = Client(model, PrefixStore(model.runner, 1), CONTEXT, cut=name == "qwen3")
        for _ in range(2):
            client.reply(TOKENS[:20], 3)
            assert (client.cached, client.store.nbytes) == (0, 0)


def test_the_beginning_of_what_does_not_fit_is_kept(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    row = sum(model.session(1).memory().pieces[kind] for kind in ("k", "v"))
    client = Client(model, PrefixStore(model.runner, 30 * row), CONTEXT, cut=True)
    client.reply(TOKENS[:50], 3)
    client.reply(TOKENS[:50], 3)
    assert client.cached == 30


def test_the_store_counts_in_the_budget_of_the_model(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    session = model.session(CONTEXT)
    store = PrefixStore(model.runner, 1 << 30)
    session.prefill(TOKENS[:50])
    row = sum(model.session(1).memory().pieces[kind] for kind in ("k", "v"))
    model.runner.budget = budget = Budget(HEADROOM + 60 * row, 0)
    store.keep(session)
    assert budget.left == 10 * row
    other = model.session(CONTEXT)
    other.prefill(TOKENS[60:80])
    store.keep(other)  # 20 rows more than there is room for: the older ones go
    assert (store.nbytes, budget.left) == (20 * row, 40 * row)
    store.clear()
    assert budget.left == 60 * row


def test_a_session_that_forgot_tokens_is_compared_again(folder: Path) -> None:
    """Rows that were read again have other bits, so they are not those of the store."""
    model = model_of(folder, "qwen3", kv="f16")
    store, session = PrefixStore(model.runner, 1 << 30), model.session(CONTEXT)
    store.read(session, TOKENS[:32])
    session.rewind(4)
    for token in TOKENS[4:32]:
        session.step(token)
    store.keep(session)
    first, other = model.session(CONTEXT), model.session(CONTEXT)
    first.prefill(TOKENS[:32])
    assert store.restore(other, TOKENS[:33]) == 32
    rows = [s.state["model.layers.1.self_attn.k"][:32].tobytes() for s in (other, first, session)]
    assert rows[1] != rows[2]
    assert rows[0] in rows[1:]


@pytest.mark.parametrize(("name", "kept"), [("qwen3", 64), ("qwen3_next", 80)])
def test_a_cancelled_prompt_is_kept_up_to_where_it_was_kept_last(folder: Path, name: str, kept: int) -> None:
    model = model_of(folder, name)
    store, session = PrefixStore(model.runner, 1 << 30), model.session(CONTEXT)
    replay = session._replay

    def cancelled(tokens: int, output: Any) -> Any:
        if session.position == 72:
            session.cancel()
        return replay(tokens, output)

    session._replay = cancelled  # type: ignore[method-assign]
    with pytest.raises(CancelledError), session._guard.use():
        store.read(session, TOKENS)
    assert session.position == 80
    assert store.restore(model.session(CONTEXT), TOKENS) == kept


def test_a_session_that_failed_is_neither_kept_nor_restored(folder: Path) -> None:
    model = model_of(folder, "qwen3_next")
    store, session = PrefixStore(model.runner, 1 << 30), model.session(CONTEXT)
    session.prefill(TOKENS[:20])
    session._failure = "something"
    store.keep(session)
    assert store.nbytes == 0
    store.read(model.session(CONTEXT), TOKENS[:30])
    with pytest.raises(StateError, match="cannot go on after: something"):
        store.restore(session, TOKENS[:40])


@pytest.mark.slow
def test_threads_share_a_store(folder: Path) -> None:
    model = model_of(folder, "qwen3_next", kv="f32")
    row = PrefixStore(model.runner, 1 << 30)
    row.read(model.session(CONTEXT), TOKENS[:60])
    store = PrefixStore(model.runner, 3 * row.nbytes)
    failures: list[object] = []

    def work(number: int) -> None:
        for turn in range(12):
            ids = [*TOKENS[:30], number % 2, *TOKENS[31 : 35 + 4 * turn]]
            session = model.session(CONTEXT)
            given = store.restore(session, ids)
            if unread := [*session.pending, *ids[given:]]:
                store.read(session, unread)
            got = greedy(session, 3)
            store.keep(session)
            if got != anew(model, CONTEXT, ids, 3) or store.nbytes > store.max_bytes:
                failures.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.slow
@pytest.mark.parametrize("kv", ["f16", "turbo8"])
def test_a_real_chat_of_whole_messages_reads_no_turn_twice(kv: str) -> None:
    path = smollm2.model_path()
    assert path is not None
    model = load(path, "cpu", kv=kv, prefix_cache="200MB")
    plain = load(path, "cpu", kv=kv)
    messages, known = [{"role": "system", "content": "Answer in one sentence."}], 0
    for text in ("Why is the sky blue?", "And at sunset?", "And at night?"):
        messages.append({"role": "user", "content": text})
        reply = model.generate(messages, 12, temperature=0)
        assert reply.stats.cached_tokens + reply.stats.prompt_tokens == len(model.prompt_ids(messages))
        assert reply.stats.cached_tokens >= known
        assert reply.text == plain.generate(messages, 12, temperature=0).text
        known = len(model.prompt_ids(messages))
        messages.append({"role": "assistant", "content": reply.text})


def test_several_models_share_what_all_of_them_may_keep() -> None:
    shared = pyturbo.PrefixCache("64MB", disk="1GB").share(4)
    assert (shared.nbytes, shared.disk) == (16_000_000, "1GB")
    assert pyturbo.PrefixCache().share(2).nbytes == pyturbo.PrefixCache().nbytes // 2
