"""Tokens of a reply, chosen from the largest logits on devices that find them: as from all logits.

The soft devices cannot show how much time this saves. What they show is how often the host waits for the
device in a step, and which memory it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from pyturbo._sampling import Sampler, TopLogits, top_logprobs
from pyturbo.engine.state import Mirror
from pyturbo.errors import ArgumentError
from text.tiny_chat import write_model

IDS = [5, 9, 3, 200]
COUNT = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("choice") / "model", layers=2)


@pytest.fixture(scope="module")
def model(folder: Path, device: pyturbo.Device) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, device) as model:
        yield model


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values the host asks of memory that only some devices share with it, call by call."""
    found: list[int] = []
    pull: Callable[[Mirror], None] = Mirror.pull
    monkeypatch.setattr(Mirror, "pull", lambda mirror: (found.append(mirror.array.size), pull(mirror)))
    return found


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "top_k": {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "seed": 7},
    "top_k and penalty": {"temperature": 1.3, "top_k": 8, "repetition_penalty": 1.2, "seed": 8},
    "greedy and penalty": {"repetition_penalty": 1.5},
    "all logits": {"temperature": 1.0, "top_p": 0.9, "seed": 9},
    "too large top_k": {"temperature": 1.0, "top_k": 65, "seed": 10},
    "rising penalty": {"repetition_penalty": 0.7},
}


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_reply_has_the_tokens_of_all_logits(model: pyturbo.Model, options: dict[str, Any]) -> None:
    with model.session(64) as session:
        sampler = Sampler(**options)
        logits, expected = session.prefill(IDS), []
        sampler.accept(IDS)
        for _ in range(COUNT):
            expected.append((*sampler.sample(logits), top_logprobs(logits, 5)))
            sampler.accept(expected[-1][0])
            logits = session.step(expected[-1][0])
    chunks = list(model.stream(IDS, COUNT, logprobs=5, **{"temperature": 0, **options}))
    assert [chunk.token for chunk in chunks] == [token for token, _, _ in expected]
    np.testing.assert_allclose(
        [c.logprob for c in chunks], [logprob for _, logprob, _ in expected], atol=1e-6
    )
    for chunk, (_, _, top) in zip(chunks, expected):
        assert [token for token, _ in chunk.top] == [token for token, _ in top]
        np.testing.assert_allclose([p for _, p in chunk.top], [p for _, p in top], atol=1e-6)


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize(("name", "all_logits"), [(n, n not in list(OPTIONS)[:4]) for n in OPTIONS])
def test_when_the_host_needs_all_logits(
    model: pyturbo.Model, pulls: list[int], name: str, all_logits: bool
) -> None:
    pulls.clear()
    options = {"temperature": 0, **OPTIONS[name]}
    chunks = list(model.stream(IDS, COUNT, logprobs=3, **options))
    needed = all_logits or model.device.traits.top_logits == 0
    assert len(pulls) == (len(chunks) if needed else 0)


def test_more_logprobs_than_were_found_are_those_of_all_logits(model: pyturbo.Model) -> None:
    (chunk,) = model.stream(IDS, 1, temperature=0, logprobs=100)
    logits = model.session(64).prefill(IDS)
    assert [token for token, _ in chunk.top] == [token for token, _ in top_logprobs(logits, 100)]


def test_logits_are_there_at_any_time(model: pyturbo.Model) -> None:
    """Those of the last token that the session has read, which may be ahead of what was asked for."""
    with model.session(64) as session, model.session(64) as other:
        expected = other.prefill(IDS).copy()
        reply = model.stream(IDS, COUNT, temperature=0, session=session)
        first = next(reply)
        np.testing.assert_array_equal(session.logits, expected)
        np.testing.assert_array_equal(session.state["logits"][0], expected)
        second = next(reply)
        steps = [other.step(token).copy() for token in (first.token, second.token)]
        np.testing.assert_array_equal(session.logits, steps[0 if session.pending else 1])
        assert [second.token, next(reply).token] == [int(logits.argmax()) for logits in steps]


def test_logits_that_were_changed_count(model: pyturbo.Model) -> None:
    with model.session(64) as session:
        logits = session.prefill(IDS)
        best, second = np.argsort(-logits, kind="stable")[:2]
        logits[best] = -np.inf
        (chunk,) = model.stream([], 1, temperature=0, session=session)
        assert chunk.token == second


def test_forks_and_saved_conversations_choose_the_same(model: pyturbo.Model, tmp_path: Path) -> None:
    with model.session(64) as session:
        for _ in session.read(IDS):
            pass
        fork = session.fork()
        session.save(tmp_path / "one.session")
        loaded = model.load_session(tmp_path / "one.session")
        session.grow(128)
        replies = [
            model.generate([], COUNT, temperature=0.7, top_k=9, seed=3, session=each)
            for each in (session, fork, loaded)
        ]
        assert replies[0].tokens == replies[1].tokens == replies[2].tokens


def test_logits_that_are_not_finite_are_refused(model: pyturbo.Model) -> None:
    with model.session(64) as session:
        for _ in session.read(IDS):
            pass
        state = session._state
        logits = state.layout.piece(state.block, "logits")
        logits.write(np.full(logits.shape, np.nan, np.float32))
        state.refresh()
        if count := model.device.traits.top_logits:
            best, tokens, totals = pyturbo.ops.top_logits(logits.read(), count, device=model.device)
            state.top = TopLogits(best[0], tokens[0], totals[0], logits.shape[1])
        with pytest.raises(ArgumentError, match="logits: expected finite values or -inf, got NaN at 0"):
            model.generate([], 1, temperature=0, session=session)


@pytest.mark.skipif(not cuda_in_tests.IN_USE, reason="soft CUDA is not in use")
@pytest.mark.parametrize("options", [{"temperature": 0}, OPTIONS["top_k"]], ids=["greedy", "top_k"])
def test_a_step_waits_once_for_the_gpu(folder: Path, options: dict[str, Any]) -> None:
    from pyturbo import _soft_cuda_tests as soft_cuda

    steps = 3
    with pyturbo.load(folder, "cuda") as model, model.session(64) as session:
        reply = model.stream(IDS, 2 * COUNT, session=session, logprobs=5, **options)
        next(reply), next(reply)  # the second step makes the graph
        before = soft_cuda.counters()
        for _ in range(steps):
            next(reply)
        after = soft_cuda.counters()
    done = {name: (after[name] - before[name]) / steps for name in after}
    assert done["waits"] == done["graph_launches"] == 1
    assert done["copies_in"] == done["copies_out"] == done["launches"] == done["allocations"] == 0
