"""The corpus as token ids: stories one after another, each closed by <|endoftext|>."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tokenizer import END, stories

GENERATED = ("stories_generated_0", "stories_generated_1", "stories_generated_2")
#: Genuine stories, and how often each counts in an epoch.
GENUINE = {"tinystories_fragments": 3, "pratham_storyweaver_en": 1, "african_storybook_en": 1}
HELD_OUT = "tinystories_valid_head"
#: The first generated stories are not trained on: their loss tells learning from remembering.
GENERATED_HELD_OUT = 512

_TWICE = re.compile(r"\b([A-Z][a-z]+),? and (?:his friend |her friend )?\1\b")


def worth_keeping(story: str) -> bool:
    """Of generated stories: begins with a sentence, does not repeat itself or confuse two characters."""
    words = story.split()
    fours = {tuple(words[i : i + 4]) for i in range(len(words) - 3)}
    return (
        story[0].isupper()
        and story[-1] in '.!?"'
        and len(fours) >= 0.96 * (len(words) - 3)
        and not _TWICE.search(story)
    )


def training_stories(corpus: Path) -> list[str]:
    texts = [s for name in GENERATED for s in stories(corpus, name)][GENERATED_HELD_OUT:]
    texts = [s for s in texts if worth_keeping(s)]
    return texts + [s for name, times in GENUINE.items() for s in stories(corpus, name) * times]


def held_out_stories(corpus: Path) -> dict[str, list[str]]:
    generated = stories(corpus, GENERATED[0])[:GENERATED_HELD_OUT]
    return {"held_out": stories(corpus, HELD_OUT), "generated": generated}


def tokens(texts: list[str], tokenizer: Tokenizer) -> list[np.ndarray]:
    end = tokenizer.token_to_id(END)
    return [np.array([*e.ids, end], np.uint16) for e in tokenizer.encode_batch_fast(texts)]


def epoch(documents: list[np.ndarray], length: int, seed: int) -> np.ndarray:
    """Shuffled windows [n, length + 1]. Each begins with a story; one that is cut off at the end of a window
    begins the next, so every story not longer than a window is seen whole. Longer ones go on instead."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(documents))
    stream = np.concatenate([documents[i] for i in order])
    ends = np.cumsum([len(documents[i]) for i in order])
    starts = np.concatenate([[0], ends[:-1]])
    windows, at = [], 0
    while at + length + 1 <= len(stream):
        windows.append(at)
        after = at + length + 1
        story = starts[np.searchsorted(starts, after, "right") - 1]
        at = int(story) if story > at else after
    rows = np.array(windows)[rng.permutation(len(windows))]
    return stream[rows[:, None] + np.arange(length + 1)]


def padded(documents: list[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """One story in each row: inputs, and targets that are -1 past its end."""
    inputs = np.zeros((len(documents), length), np.int64)
    targets = np.full((len(documents), length), -1, np.int64)
    for row, document in enumerate(documents):
        n = min(length, len(document) - 1)
        inputs[row, :n], targets[row, :n] = document[:n], document[1 : n + 1]
    return inputs, targets
