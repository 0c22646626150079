"""The files of the page: which are served, and with which headers."""

from __future__ import annotations

import re
from importlib.metadata import files
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pyturbo.serve.page import read_files, routes

FOLDER = Path(__file__).parent.parent.parent / "pyturbo" / "serve" / "page"
NAMES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=routes()))


def test_the_package_has_the_files_of_the_page() -> None:
    installed = {path.name for path in files("pyturbo-llm") or () if path.match("pyturbo/serve/page/*")}
    assert installed == set(NAMES)
    assert set(read_files()) == set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "index.html"])
def test_a_file_is_served_as_what_it_is(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"].split(";")[0] == types[name.partition(".")[2]]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_headers_of_the_page(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


def test_a_file_that_the_browser_has_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/page/main.js").headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        answer = client.get("/page/main.js", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert client.get("/page/main.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/page/", "/page/index.html", "/page/..%2fpage.py", "/page/%2e%2e/page.py", "/x"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_is_only_read(client: TestClient) -> None:
    assert client.head("/").status_code == 200
    assert client.post("/").status_code == 405


def test_files_refer_to_files_that_are_there() -> None:
    """What modules import and the page links exists; nothing comes from another site or stands inline."""
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:src|href)="page/([^"]+)"', page)) <= set(NAMES)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//|<script[^>]*>[^<]|<style|\sstyle=|\son\w+=", page)
    imported = {"main.js", "theme.js"}
    for path in FOLDER.glob("*.js"):
        found = set(re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")))
        assert found <= set(NAMES), path.name
        imported |= found
    assert imported == {path.name for path in FOLDER.glob("*.js")}


def test_no_text_is_made_into_html() -> None:
    for path in FOLDER.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path


def test_every_element_that_a_module_asks_for_is_in_the_page() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.js"):
        for name in re.findall(r'byId\("([\w-]+)"\)', path.read_text(encoding="utf-8")):
            assert f'id="{name}"' in page, (path.name, name)
