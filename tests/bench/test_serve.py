"""``pyturbo bench serve``: what its clients count. What the figures should be, no test asserts."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyturbo.bench.http_client import Load, Reply, load, overload, percentile
from pyturbo.bench.serve import ServeReport, measure
from pyturbo.bench.server_process import llama_server, pyturbo_server, running
from pyturbo.cli import main
from pyturbo.errors import StateError
from pyturbo.model import default_model
from pyturbo.serve import Settings
from serve.small_server import small

ASKED = {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}


def test_times_of_a_load() -> None:
    replies = [Reply(200, 1.0, [2.0, 2.5, 4.0]), Reply(200, 1.0, [1.5])]
    found = Load(replies, [], 3.0)
    assert found.speed == 4 / 3
    assert (found.first(0.5), found.first(0.0)) == (1.0, 0.5)
    assert (found.between(0.0), found.between(0.99)) == (0.5, 1.5)
    assert (found.per_token(0.0), found.per_token(0.99)) == (0.5, 1.0)
    assert percentile([float(i) for i in range(100)], 0.99) == 99.0


def test_every_token_is_counted_and_refusals_are_told_apart() -> None:
    with small(slots=1, queue=1) as server:
        one = load(server.live.port, [ASKED] * 3, clients=1)
        assert [len(reply.times) for reply in one.replies] == [5, 5, 5]
        assert one.refusals == []
        many = load(server.live.port, [{**ASKED, "max_tokens": 200}] * 6, clients=6)
        assert {reply.status for reply in many.refusals} == {503}
        assert len(many.replies) + len(many.refusals) == 6
        assert all(reply.first > 0 for reply in many.refusals)
        assert {len(reply.times) for reply in many.replies} == {200}


def test_clients_of_an_overloaded_server_all_ask_and_come_back_when_they_were_told() -> None:
    bodies = [{**ASKED, "max_tokens": 900 + i} for i in range(9)]
    with small(slots=1, queue=1, settings=Settings(retry_seconds=1)) as server:
        found = overload(server.live.port, bodies, replies=2, spread=0.1)
        assert len(found.replies) >= 2
        assert {reply.retry_seconds for reply in found.refusals} == {1.0}
        asked = [reply.began for reply in (*found.replies, *found.refusals)]
        assert len(asked) >= 9
        for time in asked:
            assert sum(time <= other < time + 1 for other in asked) <= 9  # nobody asked twice in a second


def test_a_server_that_goes_away_under_load_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        overload(port, [ASKED] * 3, replies=1, spread=0.0)


@pytest.mark.slow
def test_our_server_runs_in_a_process_of_its_own() -> None:
    with running(pyturbo_server(default_model(), 1, "fast", 2, 2)) as port:
        assert len(load(port, [ASKED], clients=1).replies[0].times) == 5


def test_a_server_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(StateError, match="does not start: no such model"),
        running([sys.executable, "-c", "raise SystemExit('no such model')"]),
    ):
        pass


def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert llama_server(default_model(), 1) is None


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of servers, none of which is run."""
    given: list[list[str]] = []

    @contextmanager
    def started(command: list[str]) -> Iterator[int]:
        given.append(command)
        if command == ["broken"]:
            raise StateError("bench: the server does not start: no module of that name")
        yield 1

    reply = Reply(200, 0.0, [1.0, 2.0, 3.0])
    monkeypatch.setattr("pyturbo.bench.serve.running", started)
    for name in ("load", "overload"):
        monkeypatch.setattr(f"pyturbo.bench.serve.{name}", lambda *args, **options: Load([reply], [], 3.0))
    return given


def measured(slots: int | None = None) -> ServeReport:
    sizes = {"threads": 1, "tokens": 3, "rounds": 1}
    return measure(default_model(), lambda text: None, **sizes, slots=slots, clients=(1, 8))


def test_the_servers_that_are_measured(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyturbo.bench.serve.llama_server", lambda *options: ["llama"])
    names = ["pyturbo", "pyturbo, fast", "llama-cpp-python"]
    assert [(row.server, row.clients) for row in measured().rows] == [(n, c) for n in names for c in (1, 8)]
    precisions = [command[command.index("--precision") + 1] for command in commands if "serve" in command]
    assert precisions == ["default", "fast", "default"]  # the last one is overloaded
    assert commands[2] == ["llama"]


@pytest.mark.parametrize(("slots", "expected"), [(None, "8"), (2, "2")])
def test_the_slots_of_a_server(commands: list[list[str]], slots: int | None, expected: str) -> None:
    measured(slots)
    given = [command[command.index("--slots") + 1] for command in commands if "--slots" in command]
    assert given[:2] == [expected] * 2


def test_a_peer_that_does_not_start(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Our figures stay, and the report says why there are none of the peer."""
    monkeypatch.setattr("pyturbo.bench.serve.llama_server", lambda *options: ["broken"])
    report = measured()
    assert {row.server for row in report.rows} == {"pyturbo", "pyturbo, fast"}
    assert report.facts == {"llama-cpp-python": "bench: the server does not start: no module of that name"}
    assert report.overload["clients"] == 160
    assert len(commands) == 4


def test_wrong_values(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("--tokens", "--slots"):
        assert main(["bench", "serve", name, "0"]) == 2
        assert f"{name}: expected an integer from 1 on, got 0" in capsys.readouterr().err
