"""Several models: loaded when they are asked for, closed when their memory is needed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import pyturbo
from live_server import LiveServer
from pyturbo.errors import ArgumentError, FileError
from pyturbo.model import default_model
from pyturbo.serve import Shelf, Source, create_app
from text.tiny_chat import write_model

from .small_server import LONG, until

ASKED: dict[str, Any] = {"prompt": "Once", "max_tokens": 3, "temperature": 0}


class Shop:
    """Loads the bundled model under several names, slowly if asked to, and notes when."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.failing: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def source(self, name: str, nbytes: int) -> Source:
        def load() -> pyturbo.Model:
            self.loaded.append(name)
            assert self.gate.wait(60)
            if name in self.failing:
                raise FileError(f"/models/{name}: cannot be read")
            return pyturbo.load(device="cpu")

        return Source(name, load, nbytes)

    @contextmanager
    def open(self, memory: int | None = None, **nbytes: int) -> Iterator[tuple[LiveServer, Shelf]]:
        shelf = Shelf([self.source(*each) for each in nbytes.items()], pyturbo.Engine, memory)
        with LiveServer(create_app(shelf)) as live:
            yield live, shelf


def ask(live: LiveServer, model: str | None = None, **more: Any) -> httpx.Response:
    body = ASKED | ({} if model is None else {"model": model}) | more
    return httpx.post(f"{live.url}/v1/completions", json=body, timeout=60)


def names(shelf: Shelf) -> set[str]:
    return {served.name for served in shelf.served}


def test_models_are_loaded_when_they_are_asked_for() -> None:
    shop = Shop()
    with shop.open(a=1, b=1) as (live, shelf):
        assert names(shelf) == set()
        listed = httpx.get(f"{live.url}/v1/models").json()["data"]
        assert [(each["id"], each["loaded"]) for each in listed] == [("a", False), ("b", False)]
        assert ask(live).json()["model"] == "a"
        assert shop.loaded == ["a"]
        assert ask(live, "b").json()["choices"][0]["text"] == " upon a time"
        assert ask(live, "a").status_code == 200
        assert shop.loaded == ["a", "b"]
        assert (ask(live, "c").status_code, ask(live, "c").json()["error"]["code"]) == (
            404,
            "model_not_found",
        )
        assert httpx.get(f"{live.url}/v1/models/b").json()["loaded"]


def test_requests_for_the_same_model_load_it_once() -> None:
    shop = Shop()
    shop.gate.clear()
    with shop.open(a=1) as (live, _), ThreadPoolExecutor(5) as threads:
        answers = [threads.submit(ask, live) for _ in range(5)]
        until(lambda: shop.loaded == ["a"])
        time.sleep(0.2)
        assert httpx.get(f"{live.url}/health").status_code == 200  # others are answered meanwhile
        shop.gate.set()
        assert [answer.result().status_code for answer in answers] == [200] * 5
        assert shop.loaded == ["a"]


def test_the_least_used_model_is_closed_when_memory_is_needed() -> None:
    shop = Shop()
    with shop.open(10, a=4, b=4, c=4) as (live, shelf):
        for name in ("a", "b", "a"):
            assert ask(live, name).status_code == 200
        closed = next(served for served in shelf.served if served.name == "b")
        assert ask(live, "c").status_code == 200
        assert names(shelf) == {"a", "c"}
        assert closed.engine.closed
        assert ask(live, "b").status_code == 200
        assert names(shelf) == {"b", "c"}
        assert shop.loaded == ["a", "b", "c", "b"]


def test_a_model_in_use_is_not_closed() -> None:
    shop = Shop()
    with shop.open(5, a=4, b=4) as (live, shelf):
        want = ask(live, "a", max_tokens=300, ignore_eos=True).json()["choices"][0]["text"]
        with ThreadPoolExecutor(1) as thread:
            reply = thread.submit(ask, live, "a", max_tokens=300, ignore_eos=True)
            until(lambda: shelf.served[0].engine.running == 1)
            answer = ask(live, "b")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert "in use" in answer.json()["error"]["message"]
            assert reply.result().json()["choices"][0]["text"] == want
        until(lambda: ask(live, "b").status_code == 200)
        assert names(shelf) == {"b"}


def test_a_model_is_in_use_until_the_end_of_a_stream() -> None:
    shop = Shop()
    body = LONG | {"model": "a", "stream": True}
    with shop.open(5, a=4, b=4) as (live, shelf):
        with httpx.stream("POST", f"{live.url}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert shelf.users("a") == 1
            assert ask(live, "b").status_code == 503
        until(lambda: shelf.users("a") == 0)
        assert ask(live, "b").status_code == 200


def test_of_two_models_that_are_asked_for_at_once_one_replies() -> None:
    """With memory for one of them, neither closes the other before it has replied."""
    shop = Shop()
    with shop.open(4, a=4, b=4) as (live, _), ThreadPoolExecutor(2) as threads:
        shop.gate.clear()
        answers = [threads.submit(ask, live, name) for name in "ab"]
        until(lambda: len(shop.loaded) == 1)
        shop.gate.set()
        assert sorted(answer.result().status_code for answer in answers) == [200, 503]
        assert len(shop.loaded) == 1


def test_a_model_that_is_asked_for_while_others_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, closing, go_on = Shop(), threading.Event(), threading.Event()
    with shop.open(5, a=2, b=2, c=4) as (live, shelf), ThreadPoolExecutor(2) as threads:
        assert ask(live, "a").status_code == ask(live, "b").status_code == 200
        first = shelf.served[0]
        close = first.close

        def slow_close() -> None:
            closing.set()
            assert go_on.wait(60)
            close()

        monkeypatch.setattr(first, "close", slow_close)
        largest = threads.submit(ask, live, "c")
        assert closing.wait(60)
        smaller = threads.submit(ask, live, "b")  # its place is c's already
        until(lambda: shelf.users("b") == 1)
        go_on.set()
        assert largest.result().status_code == 200
        assert smaller.result().status_code in (200, 503)  # 200 if it comes after c's reply


def test_a_model_whose_file_changed_is_loaded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = shutil.copytree(default_model(), tmp_path / "model")
    shelf = Shelf([Source("a", lambda: pyturbo.load(folder, device="cpu"))], pyturbo.Engine)
    with LiveServer(create_app(shelf)) as live:
        assert ask(live).status_code == 200
        (weights,) = folder.glob("*.safetensors")
        os.utime(weights)
        refused = ask(live)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "2"
        assert refused.json()["error"]["code"] == "model_changed"
        assert weights.name in caplog.text
        assert httpx.get(f"{live.url}/health").status_code == 200  # the next request finds it loaded again
        assert ask(live).status_code == 200


def test_a_model_that_does_not_close_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, closed = Shop(), []

    def close(self: pyturbo.Model) -> None:
        closed.append(self)
        raise OSError("stuck")

    with shop.open(4, a=2, b=2, c=4) as (live, shelf):
        assert ask(live, "a").status_code == ask(live, "b").status_code == 200
        models = [served.model for served in shelf.served]
        with monkeypatch.context() as patch:
            patch.setattr(pyturbo.Model, "close", close)
            assert ask(live, "c").status_code == 500
        assert {*map(id, closed)} == {*map(id, models)}
        assert ask(live, "c").status_code == 200
    for model in models:
        model.close()


def test_a_model_that_cannot_be_loaded_is_tried_again() -> None:
    shop = Shop()
    shop.failing.add("b")
    with shop.open(a=1, b=1) as (live, _):
        for _ in range(2):
            answer = ask(live, "b")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            error = answer.json()["error"]
            assert (error["type"], error["message"]) == (
                "server_error",
                "b cannot be loaded: /models/b: cannot be read",
            )
        assert ask(live, "a").status_code == 200
        shop.failing.clear()
        assert ask(live, "b").status_code == 200
        assert shop.loaded == ["b", "b", "a", "b"]


def test_a_client_that_goes_away_while_a_model_is_loaded() -> None:
    shop = Shop()
    shop.gate.clear()
    with shop.open(a=1) as (live, shelf):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{live.url}/v1/completions", json=LONG, timeout=0.3)
        shop.gate.set()
        until(lambda: names(shelf) == {"a"})
        until(lambda: shelf.users("a") == 0 and shelf.served[0].engine.running == 0)


def test_wrong_shelves() -> None:
    source = Source("a", pyturbo.load, 5)
    with pytest.raises(ArgumentError, match="expected at least one model"):
        Shelf([], pyturbo.Engine)
    with pytest.raises(ArgumentError, match="got it twice"):
        Shelf([source, source], pyturbo.Engine)
    with pytest.raises(ArgumentError, match="a: expected at most"):
        Shelf([source], pyturbo.Engine, 4)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
        "{{ 'a' * 1000000000000 }}",
        "{{ raise_exception('no such chat') }}",
    ],
    ids=["loops", "memory", "refuses"],
)
def test_a_template_that_does_not_end_is_a_refusal(
    tmp_path: Path, template: str, make_shelf: Callable[[Path], Shelf]
) -> None:
    shelf = make_shelf(write_model(tmp_path / "model", 2, template=template))
    with LiveServer(create_app(shelf)) as live:
        began = time.monotonic()
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        answer = httpx.post(f"{live.url}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 400
        assert "template" in answer.json()["error"]["message"]
        assert time.monotonic() - began < 30
        assert ask(live).status_code == 200


@pytest.fixture
def make_shelf() -> Callable[[Path], Shelf]:
    return lambda path: Shelf([Source("own", lambda: pyturbo.load(path, "cpu"))], pyturbo.Engine)
