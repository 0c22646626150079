"""A program, not part of the tests: what the processes between a client and a replica cost, with Ray Serve.

The replica of this program only sends events, so that the rest is the cost of passing them on. Prints the
processor time of each kind of process for a request and for an event.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from pyturbo.serve import Settings
from pyturbo.serve.ray import application

PORT = 8199
CLIENTS = 4
KINDS = ("ProxyActor", "Front", "Worker")
PIECE = b"data: " + b"x" * 250 + b"\n\n"  # about as long as an event of a completion


def make_app() -> Any:
    """Return an application that sends as many events as it is told."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked = json.loads((await receive())["body"])
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(asked["events"]):
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            await asyncio.sleep(0.002)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def seconds() -> dict[str, float]:
    """Return the processor time of each kind of process so far."""
    found = dict.fromkeys(KINDS, 0.0)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_text()
            ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:  # it has ended
            continue
        for kind in KINDS:
            if name.startswith("ray::") and kind in name:
                found[kind] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return found


def ask(requests: int, events: int) -> None:
    """Have clients send requests at the same time."""

    def one() -> None:
        with httpx.Client(timeout=60) as client:
            for _ in range(requests // CLIENTS):
                asked = {"prompt": "word " * 200, "events": events}
                client.post(f"http://127.0.0.1:{PORT}/v1/completions", json=asked).raise_for_status()

    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(application(make_app, Settings(), actor={"num_cpus": 0}), name="cost")
    ask(8, 5)
    for what, requests, events in (("request of one event", 120, 1), ("event", 24, 200)):
        before = seconds()
        ask(requests, events)
        after, count = seconds(), requests if events == 1 else requests * events
        spent = {kind: f"{1e3 * (after[kind] - before[kind]) / count:.2f} ms" for kind in KINDS}
        print(f"{what}: {spent}", flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
