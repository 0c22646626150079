"""The model in the package."""

from __future__ import annotations

import pytest

import pyturbo

OPENING = "Once upon a time, there was a little fox named Tim."
SHORT = "One day, Tim"  # the reference takes a quarter of a second for each token


@pytest.mark.slow
def test_it_writes_the_same_on_every_device() -> None:
    replies = {
        name: pyturbo.load(device=name, kv="f32").generate(SHORT, 9) for name in ("cpu", "cpu:reference")
    }
    assert replies["cpu"].tokens == replies["cpu:reference"].tokens
    words = replies["cpu"].text.split()
    assert len(words) >= 6
    assert all(word.strip(".,!?'\"").isalpha() for word in words)


def test_it_ends_a_story() -> None:
    reply = pyturbo.load().generate(OPENING, 400, temperature=0.7, seed=1)
    assert reply.finish_reason == "stop"
    assert "Tim" in reply.text
