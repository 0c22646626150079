"""Stop strings over a divided text, against the rule over the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyturbo.errors import ArgumentError
from pyturbo.text import StopStrings

# Few letters, so that strings overlap and contain each other.
LETTERS = st.text(alphabet="ab", max_size=4)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


def rule(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the first place where a stop string starts, and the shortest one that starts there."""
    for place in range(len(text)):
        for stop in sorted(stops, key=len):
            if text.startswith(stop, place):
                return text[:place], stop
    return text, None


@given(st.lists(LETTERS, max_size=12), STOPS)
def test_the_text_ends_where_the_rule_says(parts: list[str], stops: list[str]) -> None:
    ending = StopStrings(stops)
    shown, given_ = "", ""
    for part in parts:
        text, stopped = ending.add(part)
        shown += text
        given_ += part
        assert stopped == ending.stopped
        if stopped:
            break
        held = given_[len(shown) :]
        assert given_.startswith(shown)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
    shown += ending.finish()
    assert (shown, ending.found) == rule("".join(parts), stops)


def test_a_stop_string_may_span_several_parts() -> None:
    ending = StopStrings(["</s>", "User:"])
    assert ending.add("Hi <") == ("Hi ", False)
    assert ending.add("b> Us") == ("<b> ", False)
    assert ending.add("er: what") == ("", True)
    assert ending.add("more") == ("", True)
    assert ending.finish() == ""


def test_the_one_that_starts_first_wins() -> None:
    ending = StopStrings(["abcd", "bc"])
    assert ending.add("xabc") == ("x", False)
    assert ending.add("d") == ("", True)
    ending = StopStrings(["abcd", "bc"])
    ending.add("xabc")
    assert ending.add("e") == ("a", True)
    ending = StopStrings(["abcd", "bc"])
    ending.add("xabc")
    assert not ending.stopped
    assert ending.finish() == "a"
    assert ending.stopped


def test_harmless_text_comes_back() -> None:
    ending = StopStrings(["END"])
    assert ending.add("THE EN") == ("THE ", False)
    assert ending.finish() == "EN"
    assert not ending.stopped
    assert StopStrings([]).add("anything") == ("anything", False)


@pytest.mark.parametrize(
    ("stops", "message"),
    [("END", "not empty, got 'END'"), ([1], "expected a list of texts"), ([""], "not empty")],
)
def test_wrong_stop_strings_are_refused(stops: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        StopStrings(stops)
