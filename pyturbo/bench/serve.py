"""Servers of completions: their speed with several clients, what HTTP costs, and what overload does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyturbo.batching import Engine
from pyturbo.bench.http_client import Load, load, overload, percentile
from pyturbo.bench.server_process import llama_server, pyturbo_server, running
from pyturbo.errors import StateError
from pyturbo.model import load as load_model

CLIENTS = (1, 8, 32)
PRECISIONS = ("default", "fast")  # llama.cpp rounds activations to 8 bits, as fast precision does
OURS = "pyturbo"
OVERLOAD = 10  # times the requests that a server takes
#: Seconds within which clients of an overloaded server begin, and after which it has them ask again.
SPREAD = 2.0

_SLOTS = 8  # of the server that is overloaded, and as many places in its queue
_ENDS = {"0": -100, "2": -100}  # tokens that would end a reply of SmolLM2


@dataclass(frozen=True)
class ServeRow:
    """What clients at once were given by a server; times are in milliseconds.

    Attributes:
        per_token_ms: The time of a whole reply, from the request on, for each of its tokens. A server that
            lets clients wait for their turn has short times between tokens, but not short ones of these.
    """

    server: str
    clients: int
    tokens_per_second: float
    first_ms: float
    first_99_ms: float
    between_ms: float
    between_99_ms: float
    per_token_ms: float
    per_token_99_ms: float


@dataclass
class ServeReport:
    """Figures of servers.

    Attributes:
        rows: By server and number of clients.
        between_us: Median microseconds between tokens of one reply, by what gives them.
        overhead: Share by which a token takes longer over HTTP than from `Model.stream`.
        overload: Of a server that is asked for more than it takes.
        facts: What else there is to say.
    """

    rows: list[ServeRow] = field(default_factory=list)
    between_us: dict[str, float] = field(default_factory=dict)
    overhead: float | None = None
    overload: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


def measure(
    model: Path,
    tell: Callable[[str], None],
    *,
    threads: int,
    tokens: int,
    rounds: int,
    slots: int | None = None,
    clients: tuple[int, ...] = CLIENTS,
    precisions: tuple[str, ...] = PRECISIONS,
) -> ServeReport:
    """Measure our server, and that of llama-cpp-python if it is installed and starts, in the same run.

    One client and the overload are those of the first precision. `slots` are those of our server, except
    under overload; without them there are as many as clients.
    """
    report = ServeReport()
    for precision in precisions:
        ours = pyturbo_server(model, threads, precision, slots=slots or max(clients), queue=max(clients))
        name = OURS if precision == "default" else f"{OURS}, {precision}"
        with running(ours) as port:
            if not report.rows:
                tell("one client beside Model.stream")
                _one_client(report, model, port, threads, precision, tokens, rounds)
            report.rows += _rows(name, port, clients, tokens, tell)
    theirs = llama_server(model, threads)
    if theirs is None:
        report.facts["llama-cpp-python"] = "its server is not installed"
    else:
        try:
            with running(theirs) as port:
                report.rows += _rows("llama-cpp-python", port, clients, tokens, tell)
        except StateError as error:
            report.facts["llama-cpp-python"] = str(error)
    tell("overload")
    with running(pyturbo_server(model, threads, precisions[0], slots=_SLOTS, queue=_SLOTS)) as port:
        _overload(report, port, tokens)
    return report


def _bodies(count: int, tokens: int, **more: Any) -> list[dict[str, Any]]:
    """Return requests whose prompts begin in different ways, so that none is known already."""
    text = "tell me how the river came to the sea, and what it saw on its way through the hills."
    return [
        {"prompt": f"{i} travellers: {text}", "max_tokens": tokens, "temperature": 0, **more}
        for i in range(count)
    ]


def _rows(
    server: str, port: int, clients: tuple[int, ...], tokens: int, tell: Callable[[str], None]
) -> Iterator[ServeRow]:
    more: dict[str, Any] = {"ignore_eos": True} if server.startswith(OURS) else {"logit_bias": _ENDS}
    load(port, _bodies(max(clients), 4, **more), clients=max(clients))  # records programs
    for count in clients:
        tell(f"{server}, {count} clients")
        found = load(port, _bodies(max(2, count), tokens, **more), clients=count)
        yield ServeRow(server, count, found.speed, *_milliseconds(found))


def _milliseconds(found: Load) -> tuple[float, ...]:
    return tuple(
        1e3 * each(share) for each in (found.first, found.between, found.per_token) for share in (0.5, 0.99)
    )


def _one_client(
    report: ServeReport, path: Path, port: int, threads: int, precision: str, tokens: int, rounds: int
) -> None:
    """Take turns: a reply of the model itself, of an engine in this process, and over HTTP."""
    bodies = _bodies(rounds + 1, tokens, ignore_eos=True)
    with (
        load_model(path, threads=threads, precision=precision) as model,
        Engine(model, slots=1, context=1024) as engine,
    ):
        medians: dict[str, list[float]] = {"Model.stream": [], "Engine": [], "HTTP": []}
        for body in bodies:
            options = {name: value for name, value in body.items() if name != "prompt"}
            medians["Model.stream"].append(_median(model.stream(body["prompt"], **options)))
            medians["Engine"].append(_median(engine.submit(body["prompt"], **options)))
            medians["HTTP"].append(load(port, [body], clients=1).between(0.5))
    report.between_us = {
        name: 1e6 * statistics.median(found[1:]) for name, found in medians.items()
    }  # the first round records programs
    ratios = [ours / alone for ours, alone in zip(medians["HTTP"][1:], medians["Model.stream"][1:])]
    report.overhead = statistics.median(ratios) - 1


def _median(chunks: Any) -> float:
    """Return the median time between chunks."""
    times = [time.perf_counter() for _ in chunks]
    return statistics.median(later - earlier for earlier, later in pairwise(times))


def _overload(report: ServeReport, port: int, tokens: int) -> None:
    clients = OVERLOAD * 2 * _SLOTS
    bodies = _bodies(clients, tokens, ignore_eos=True)
    load(port, bodies[:_SLOTS], clients=_SLOTS)
    usual = load(port, bodies[: 4 * _SLOTS], clients=_SLOTS)
    found = overload(port, bodies, replies=4 * _SLOTS, spread=SPREAD)
    at_once = overload(port, bodies, replies=_SLOTS, spread=0.0)
    report.overload = {
        "clients": clients,
        "refused": len(found.refusals),
        "between_ms": 1e3 * found.between(0.5),
        "between_ms_unloaded": 1e3 * usual.between(0.5),
        "tokens_per_second": found.speed,
        "tokens_per_second_unloaded": usual.speed,
        **_refusals("refusal", found),
        **_refusals("refusal_all_at_once", at_once),
    }


def _refusals(name: str, found: Load) -> dict[str, float]:
    """Return the median and the 99th percentile of the time to a refusal, if there are any."""
    times = [reply.first for reply in found.refusals]
    shares = {f"{name}_ms": 0.5, f"{name}_99_ms": 0.99}
    return {key: 1e3 * percentile(times, share) for key, share in shares.items()} if times else {}
