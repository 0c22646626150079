"""The pages build as a site, strictly, and the site refers to nothing outside itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Attributes whose target a browser fetches by itself, or that lead to a page.
TARGETS = {"a": "href", "img": "src", "link": "href", "script": "src"}


class Targets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        value = dict(attributes).get(TARGETS.get(tag, ""))
        if value:
            self.found.append(value)


def targets(page: Path) -> list[str]:
    parser = Targets()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def test_the_site_is_whole_and_stands_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "excluded" not in done.stderr
    pages = [page for page in tmp_path.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 20
    for page in pages:
        for target in targets(page):
            assert not re.match(r"(https?:)?//", target), f"{page.name}: {target}"
            path = target.partition("#")[0]
            assert (page.parent / path).exists(), f"{page.name}: {target}"
    for page, text in (
        ("reference/models.html", "Continues a prompt, one chunk a token"),
        ("reference/devices.html", "Runs kernels."),  # from a compiled module
        ("reference/operations.html", "affine_matmul"),
    ):
        assert text in (tmp_path / page).read_text(encoding="utf-8"), page
