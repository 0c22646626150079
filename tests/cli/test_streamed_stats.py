"""What replies of streamed models tell about their experts: --stats, --json, Stats and Memory."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import pytest

import pyturbo
from pyturbo.checkpoint import open_checkpoint
from pyturbo.cli import main
from pyturbo.cli._model import stats_lines
from pyturbo.forecast import forecast
from pyturbo.streaming import ExpertUse, Policy

LAYERS, CHOSEN = 8, 4  # of the model in the package


@pytest.fixture(scope="module")
def fitting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model, which no test changes."""
    return pyturbo.pack(pyturbo.model.default_model(), tmp_path_factory.mktemp("packed") / "model").path


@pytest.fixture
def packed(fitting: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is streamed, although it would fit."""
    monkeypatch.setattr(Policy, "of", staticmethod(lambda path: Policy(mode="stream")))
    return fitting


def test_a_line_about_experts(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "Once upon a time", "--max-tokens", "9", "--stats"]
    assert main([*command, "--model", str(packed)]) == 0
    speed, experts = capsys.readouterr().err.splitlines()
    assert "slots for experts 8.0 MiB" in speed
    for text in (
        "experts: ",
        " hits, ",
        " misses (",
        " read per token, ",
        "% of the time waiting; ",
        "prompt",
    ):
        assert text in experts
    assert main(command) == 0
    (speed,) = capsys.readouterr().err.splitlines()
    assert "slots" not in speed


def test_json(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "Once upon a time", "--max-tokens", "9", "--json"]
    assert main([*command, "--model", str(packed)]) == 0
    reply = json.loads(capsys.readouterr().out)
    used = reply["stats"]["decode_experts"]
    assert used["hits"] + used["misses"] == 8 * LAYERS * CHOSEN  # the first of nine tokens is the prompt's
    assert used.keys() == {"hits", "misses", "read_bytes", "wait_seconds"}
    assert reply["stats"]["prefill_experts"]["misses"] > 0
    assert reply["memory"]["experts"] == 8 << 20
    assert main(command) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["stats"]["decode_experts"] is None
    assert reply["memory"]["experts"] == 0


def test_weights_are_told_apart_from_slots(packed: Path) -> None:
    with pyturbo.load(packed, policy=Policy(mode="mapped")) as model:
        whole = model.session(64).memory()
        wanted = model.generate("Once upon a time", 5).text
    with pyturbo.load(packed) as model:
        assert model.generate("Once upon a time", 5).text == wanted
        memory = model.session(64).memory()
        experts = model.runner.experts
        assert experts is not None
        assert memory.experts == experts.nbytes
    with open_checkpoint(packed) as checkpoint:
        tables = memory.weights - forecast(checkpoint).other_bytes  # which experts are in which slots
    assert 0 <= tables <= LAYERS * 4 * 16 * 4
    assert whole.weights > memory.weights + 7e6
    assert whole.experts == 0


def test_counts_of_replies_add_up(packed: Path) -> None:
    with pyturbo.load(packed) as model:
        first = model.generate("Once upon a time", 7).stats
        second = model.generate("There was a dog", 3).stats
        experts = model.runner.experts
        assert experts is not None
        uses = [first.prefill_experts, first.decode_experts, second.prefill_experts, second.decode_experts]
        assert all(uses)
        total = sum(uses, ExpertUse())
        assert (total.hits, total.misses) == (experts.use.hits, experts.use.misses)
        assert total.read_bytes == experts.use.read_bytes
        assert total.read_bytes >= total.misses * (64 << 10)  # more is read early, perhaps in vain
        assert total.wait_seconds == pytest.approx(experts.use.wait_seconds)


def test_a_conversation_counts_all_that_its_prompt_needs(packed: Path) -> None:
    """A turn is read in two parts, before and after the place from which it could be read again."""
    with pyturbo.load(packed) as model:
        model.tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        experts, stats = model.runner.experts, pyturbo.Stats()
        assert experts is not None
        chat = pyturbo.Conversation(model, 256)
        for line in ("Tell me a story about a dog.", "And one about a cat."):
            before = experts.use
            list(chat.reply(line, max_tokens=5, stats=stats))
            assert stats.prefill_experts is not None
            assert stats.decode_experts is not None
            counted, used = stats.prefill_experts + stats.decode_experts, experts.use - before
            assert astuple(counted) == pytest.approx(astuple(used), rel=1e-9)  # sums of seconds are rounded


def test_a_reply_of_one_token_has_no_speed(packed: Path) -> None:
    with pyturbo.load(packed) as model:
        session = model.session(64)
        stats = model.generate("Once", 1, session=session).stats
        assert stats.decode_experts is not None
        _, line = stats_lines(stats, session)
    assert line.startswith("experts: ")
    assert "per token" not in line


def test_hit_rate() -> None:
    assert ExpertUse(3, 1).hit_rate == 0.75
    assert ExpertUse().hit_rate == 1
