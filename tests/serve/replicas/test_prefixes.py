"""Which replica has read the beginning of a prompt."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pyturbo.serve.replicas.prefixes import BLOCK, Prefixes, blocks_of


def body(text: str) -> bytes:
    return json.dumps({"stream": True, "prompt": text, "max_tokens": 5}).encode()


@given(st.text(max_size=900), st.text(min_size=1, max_size=900), st.text(min_size=1, max_size=900))
def test_equal_beginnings_have_equal_blocks(common: str, one: str, other: str) -> None:
    first, second = blocks_of(body(common + one)), blocks_of(body(common + other))
    least = len(json.dumps([None, None, None, None, None, common], ensure_ascii=False)) // BLOCK - 1
    assert first[: max(least, 0)] == second[: max(least, 0)]
    if len(first) == len(second) and one != other and len(json.dumps(one)) == len(json.dumps(other)):
        assert (first == second) <= (len(common + one) < 2 * BLOCK * (len(first) + 1))


def test_another_beginning_changes_all_blocks() -> None:
    rest = "x" * 2000
    assert not set(blocks_of(body("a" + rest))) & set(blocks_of(body("b" + rest)))


def test_bodies_that_are_no_prompts_have_no_blocks() -> None:
    assert blocks_of(b"") == blocks_of(b"[1]") == blocks_of(b"{") == blocks_of(b"[" * 100_000) == []


def test_the_longest_beginning_wins_and_the_oldest_is_forgotten() -> None:
    known = Prefixes(most=4)
    known.note([1, 2], "a")
    known.note([1, 3], "b")
    assert known.best([1, 2, 9], {"a", "b"}) == "a"
    assert known.best([1, 3, 9], {"a", "b"}) == "b"
    assert known.best([1, 3, 9], {"a"}) == "a"
    assert known.best([1, 3, 9], {"c"}) is None
    known.note([4, 5], "a")
    assert known.best([2], {"a"}) is None
    assert known.best([4], {"a"}) == "a"
