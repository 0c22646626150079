"""The pages build as a site, strictly: nothing in it refers to the outside, every page is in the menu, and no
text is taken as HTML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

#: Attributes whose target a browser fetches by itself, or that lead to a page.
TARGETS = {"a": "href", "img": "src", "link": "href", "script": "src"}


#: The elements that the theme and Markdown make. Another one is text that lost its angle brackets.
ELEMENTS = """
    a article aside b blockquote body br button code details div em footer form h1 h2 h3 h4 h5 h6 head header
    hr html img input label li link main meta nav ol p path pre script span strong style summary sub sup svg
    table tbody td th thead title tr ul
"""


class Content(HTMLParser):
    """What a page leads to, the elements it has, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.elements: set[str] = set()
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        value = dict(attributes).get(TARGETS.get(tag, ""))
        if value:
            self.targets.append(value)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    done = subprocess.run(
        [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "excluded" not in done.stderr
    return folder


def test_the_site_is_whole_and_stands_alone(site: Path) -> None:
    pages = {page: Content(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 20
    menu = {(site / target.partition("#")[0]).resolve() for target in pages[site / "index.html"].targets}
    for page, content in pages.items():
        assert page.resolve() in menu, page.name
        assert content.elements <= {*ELEMENTS.split()}, page.name
        assert "turbov" not in content.text, page.name
        for target in content.targets:
            assert not re.match(r"(https?:)?//", target), f"{page.name}: {target}"
            path = target.partition("#")[0]
            assert (page.parent / path).exists(), f"{page.name}: {target}"
    for name, text in (
        ("models.html", "Continue a prompt, one chunk a token"),
        ("models.html", "turbo<k>v<v> has k bits"),
        ("devices.html", "A device that runs kernels"),  # from a compiled module
        ("operations.html", "affine_matmul"),
    ):
        assert text in pages[site / "reference" / name].text, name
