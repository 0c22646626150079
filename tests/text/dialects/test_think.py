"""Thoughts between tags."""

from __future__ import annotations

import pytest

from pyturbo.text.dialects import Dialect, Message, Reasoning, Text
from text.dialects.replies import parts_of

THINK = Dialect(thinks=True)
QWEN3 = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("prompt", "reply", "message"),
    [
        (QWEN3, "<think>\nHm.\n</think>\n\nYes.\n", Message("Yes.\n", "Hm.")),
        (QWEN3, "\n<think>\n\n</think>\n\nYes.", Message("Yes.")),
        (QWEN3 + "<think>\n", "Hm.\n\nSo.\n</think>\n\nYes.", Message("Yes.", "Hm.\n\nSo.")),
        (QWEN3 + "<think>\n\n</think>\n\n", "Yes.", Message("Yes.")),
        (QWEN3 + "<think>\nWell, ", "no.</think>No.", Message("No.", "no.")),
        ("<\uff5cAssistant\uff5c><think>", "cut of", Message("", "cut of")),
        (QWEN3, "<think>cut off", Message("", "cut off")),
        (QWEN3, "The tag is <think>.", Message("The tag is <think>.")),
        (QWEN3, "No.</think>", Message("No.</think>")),
        (QWEN3, "  \n Yes. \n", Message("  \n Yes. \n")),
        (QWEN3, "<thin", Message("<thin")),
        (QWEN3, " \n", Message(" \n")),
        (QWEN3, "<think>a</think><think>b</think>c", Message("c", "a\n\nb")),
        (
            "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n",
            "A tag.",
            Message("A tag."),
        ),
    ],
)
def test_thoughts_and_answers(prompt: str, reply: str, message: Message) -> None:
    assert THINK.parse(reply, prompt=prompt) == message


def test_pieces_arrive_as_soon_as_they_are_certain() -> None:
    parser = THINK.parser()
    assert parser.add("<th") == []
    assert parser.add("ink>Hm") == [Reasoning("Hm")]
    assert parser.add(" <") == []
    assert parser.add("/b>\n") == [Reasoning(" </b>")]
    assert parser.add("</think>\nYes") == [Text("Yes")]
    assert parser.add("\n") == []
    assert parser.finish() == [Text("\n")]
    assert parser.finish() == []


def test_a_dialect_without_thoughts_has_tags_as_text() -> None:
    assert parts_of(Dialect(), ["<think>a</think>"]) == [Text("<think>a</think>")]
