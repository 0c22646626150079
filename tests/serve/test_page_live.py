"""The page and the server together: a model whose replies the test writes, in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_server import LiveServer
from pyturbo.serve import Settings
from serve.browser import NEEDS_CHROMIUM, Reader, chromium

from .conftest import KEY, Script
from .small_server import small

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]


def test_the_page_talks_to_the_server(live: LiveServer, script: Script, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as driver:
        reader = Reader(driver, live.url)
        reader.visit(key=KEY, keep_key=True, logprobs=True, max_tokens="64")
        assert reader.texts("#model option") == ["chat", "stories"]
        assert "401" in "".join(reader.log())  # of the first visit, without a key
        script("They ask.</think>\n\nThe **Loire** 🦊.")
        reader.talk("Name a river in France.")
        assert "".join(reader.texts(".token")) == "The **Loire** 🦊."
        reader.run("arguments[0].focus()", reader.all(".token")[3])
        reader.until(lambda: reader.texts("#token-card .chosen .text"))
        assert len(reader.texts("#token-card .row")) in (5, 6)
        reader.click("Show tokens and their probabilities")
        assert reader.texts(".reply > .markdown strong") == ["Loire"]
        reader.one(".thoughts summary").click()
        reader.until(lambda: reader.texts(".thoughts p") == ["They ask."])
        assert "tokens/s" in reader.one(".reply-figures").text
        script("Again.</think>The Rhône.")
        reader.talk("Another one?")
        cached = reader.all(".reply-figures")[1].text.split(" · ")[-1].removesuffix(" % of the prompt cached")
        assert 0 < float(cached) <= 100
        reader.click("Figures")
        reader.until(lambda: "Conversations under way" in reader.texts("#server-figures dt"))
        assert "Reply tokens" in reader.texts("#server-figures dt")
        assert reader.log() == []


@pytest.mark.parametrize("key", ["schl\u00fcssel", "cl\u00e9 \u2026", "\U0001f511\u00e0"])
def test_a_key_may_have_any_characters(key: str, tmp_path: Path) -> None:
    with small(settings=Settings(keys=[key])) as server, chromium(tmp_path / "profile") as driver:
        reader = Reader(driver, server.url)
        reader.visit(key=key, keep_key=True)
        assert reader.texts("#model option") == ["stories"]
