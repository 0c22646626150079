"""A run of a server under random use: python tests/serve_soak.py MINUTES. The tests run it for a minute.

Clients of the real process ask by every interface for replies, streaming or not, go away at random, send
what is no request, connect and say nothing, and ask for more than is allowed. Every reply that is whole must
be that of the model alone, and every piece of a stream its beginning. With up to seven conversations at once
(`--slots`) the bits are equal, whatever the prompt. From eight on sums are rounded otherwise: prompts with a
step whose two likeliest tokens are within `MARGIN` of each other are then left out, and with them mistakes
that only such a step would show. Rounding changes logits by about 1e-5 of their spread, far less than that.

Prints a summary. The status is 1 if a reply was wrong, a status was none of those that are allowed, something
hung, the server said anything or did not end with status 0, if memory, threads, files or replies were left
when all clients were gone, or if never all slots were taken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

import pyturbo
from pyturbo.engine.runner import MANY
from serve.interfaces import INTERFACES, Interface
from serve.served_process import ServedProcess, events

SLOTS = 6
LONGEST = 48  # tokens of a reply
MARGIN = 0.02  # by which the logarithms of the likeliest two differ, where bits are not equal
WORDS = ("Once", "upon", "a", "time", "the", "little", "fox", "saw", "Lily", "and", "Tim", "big", "dog")
HANG = 60.0  # seconds after which a request counts as hanging; a busy machine may need more (`--hang`)
LEAK = 24 << 20  # bytes by which the process may grow after its first round
WORKERS = min(32, (os.cpu_count() or 1) + 4)  # threads of the event loop, which begin one by one and stay
GARBAGE = (
    b"\x16\x03\x01garbage\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{",
    b"GET /health HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    b"",
)
WRONG: tuple[dict[str, Any], ...] = (
    {"prompt": "a", "temperature": -1},
    {"prompt": [10**9]},
    {"prompt": "a", "bogus": 1},
    {"prompt": "word " * 5000, "max_tokens": 1},
    {"prompt": "a", "regex": "("},
    {"prompt": "a", "model": "nobody"},
)


@dataclass
class Report:
    """What happened. Any thread."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    most_running: int = 0  # conversations at once
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def find(self, what: str) -> None:
        with self._lock:
            self.findings.append(what)
        print(f"FINDING: {what}", flush=True)


class Answers:
    """What the model alone says to some prompts."""

    def __init__(self, seed: int, margin: float, count: int = 24) -> None:
        """Take by how much the logarithms of the two likeliest tokens of a step must differ."""
        rng = random.Random(seed)
        self._pieces: dict[str, list[str]] = {}
        with pyturbo.load(device="cpu", threads=1) as model:
            while len(self._pieces) < count:
                prompt = " ".join(rng.choices(WORDS, k=rng.choice((1, 5, 40, 200))))
                chunks = [*model.stream(prompt, LONGEST, temperature=0, logprobs=2)]
                if all(chunk.top[0][1] - chunk.top[1][1] >= margin for chunk in chunks):
                    self._pieces[prompt] = [chunk.text for chunk in chunks]
        self.prompts = [*self._pieces]

    def text(self, prompt: str, tokens: int) -> str:
        """Return the text of the first tokens; of a character that is not whole yet nothing is known."""
        return "".join(self._pieces[prompt][:tokens])


class Client:
    """A thread that asks, one request after the other."""

    def __init__(
        self, seed: int, url: str, answers: Answers, report: Report, end: float, pause: float, hang: float
    ) -> None:
        """Take how long it waits at most between two requests, and for one."""
        self._hang = hang
        self._rng, self._url, self._answers, self._report = random.Random(seed), url, answers, report
        self._end, self._pause, self.asking_since = end, pause, time.monotonic()
        self.thread = threading.Thread(target=self._run, name=f"client {seed}", daemon=True)

    def _run(self) -> None:
        acts = (self._whole, self._stream, self._stream, self._leave, self._leave, self._wrong, self._garbage)
        http = httpx.Client(timeout=self._hang)
        try:
            while time.monotonic() < self._end:
                self.asking_since = time.monotonic()
                if self._rng.random() < 0.2:
                    http.close()
                    http = httpx.Client(timeout=self._hang)
                self._rng.choice(acts)(http)
                time.sleep(self._pause * self._rng.random())
        except BaseException:
            self._report.find(f"{self.thread.name}: {traceback.format_exc()}")
        finally:
            http.close()

    def _asked(self) -> tuple[str, int]:
        """Return a prompt, and how many tokens to ask for."""
        return self._rng.choice(self._answers.prompts), self._rng.randrange(1, LONGEST + 1)

    def _interface(self) -> Interface:
        return self._rng.choice(INTERFACES)

    def _admitted(self, answer: httpx.Response) -> bool:
        if answer.status_code == 503:
            answer.read()
            if "too many requests wait" not in answer.text or "retry-after" not in answer.headers:
                self._report.find(f"a refusal: {answer.text}")
            self._report.count("refused")
            time.sleep(0.05 * self._rng.random())
            return False
        if answer.status_code != 200:
            answer.read()
            self._report.find(f"status {answer.status_code}: {answer.text}")
            return False
        return True

    def _require(self, asked: tuple[str, int], got: str, *, whole: bool) -> None:
        want = self._answers.text(*asked)
        if got != want if whole else not want.startswith(got):
            self._report.find(f"{asked}: expected {want!r}, got {got!r}")

    def _whole(self, http: httpx.Client) -> None:
        asked, spoken = self._asked(), self._interface()
        answer = http.post(f"{self._url}{spoken.path}", json=spoken.body(*asked))
        if self._admitted(answer):
            found = answer.json()
            self._require(asked, spoken.text(found), whole=True)
            self._report.count("replies")
            self._report.count("tokens", spoken.tokens(found))

    def _stream(self, http: httpx.Client) -> None:
        asked, spoken, text, done = self._asked(), self._interface(), "", False
        body = spoken.body(*asked) | {"stream": True}
        with http.stream("POST", f"{self._url}{spoken.path}", json=body) as answer:
            if not self._admitted(answer):
                return
            for found in events(answer):
                done, piece = spoken.ends(found), spoken.piece(found)
                text += piece
                self._report.count("tokens", bool(piece))
        if not done:
            self._report.find(f"{spoken.path}, {asked}: a stream without its end")
        self._require(asked, text, whole=True)
        self._report.count("streams")

    def _leave(self, http: httpx.Client) -> None:
        """Go away after some events, or before the first."""
        asked, spoken, text = (self._asked()[0], LONGEST), self._interface(), ""
        body = spoken.body(*asked) | {"stream": self._rng.random() < 0.7}
        if self._rng.random() < 0.5:
            data = json.dumps(body).encode()
            head = f"POST {spoken.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
            self._raw(head.encode() + data, seconds=0.2 * self._rng.random())
        else:
            body |= {"stream": True}
            with http.stream("POST", f"{self._url}{spoken.path}", json=body) as answer:
                if not self._admitted(answer):
                    return
                for _, found in zip(range(self._rng.randrange(6)), events(answer)):
                    text += spoken.piece(found)
            self._require(asked, text, whole=False)
        self._report.count("left")

    def _wrong(self, http: httpx.Client) -> None:
        answer = http.post(f"{self._url}/v1/completions", json=self._rng.choice(WRONG))
        if answer.status_code not in (400, 404, 503):
            self._report.find(f"status {answer.status_code} of a wrong request: {answer.text}")
        self._report.count("wrong")

    def _garbage(self, http: httpx.Client) -> None:
        self._raw(self._rng.choice(GARBAGE), seconds=0.1 * self._rng.random())
        self._report.count("garbage")

    def _raw(self, data: bytes, seconds: float) -> None:
        port = int(self._url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), self._hang) as connection:
            connection.sendall(data)
            time.sleep(seconds)


def round_of(
    server: ServedProcess,
    answers: Answers,
    report: Report,
    seed: int,
    *,
    clients: int,
    seconds: float,
    pause: float,
    hang: float,
) -> None:
    """Let clients ask for a while, then wait until the server does nothing."""
    end = time.monotonic() + seconds
    asking = [Client(seed + i, server.url, answers, report, end, pause, hang) for i in range(clients)]
    for client in asking:
        client.thread.start()
    while time.monotonic() < end:
        report.most_running = max(report.most_running, server.counts()[0])
        time.sleep(0.2)
    for client in asking:
        client.thread.join(hang)
        if client.thread.is_alive():
            report.find(f"{client.thread.name} hangs for {time.monotonic() - client.asking_since:.0f} s")
    patience = time.monotonic() + hang
    while server.counts() != (0, 0):
        if time.monotonic() > patience:
            report.find(f"replies are left: {server.counts()}")
            return
        time.sleep(0.05)
    time.sleep(1)  # connections close, and threads that were busy end


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Runs a server under random use.")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--round", type=float, default=20.0, help="seconds of a round (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="the most seconds between two requests of a client"
    )
    parser.add_argument(
        "--slots",
        type=int,
        default=SLOTS,
        help="conversations at once; as many may wait, and 4 clients more ask (default: %(default)s)",
    )
    parser.add_argument(
        "--hang",
        type=float,
        default=HANG,
        help="seconds after which a request counts as hanging (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    report, slots = Report(), str(given.slots)
    answers = Answers(given.seed, 0.0 if given.slots < MANY else MARGIN)
    clients = 2 * given.slots + 4
    use = partial(round_of, clients=clients, pause=given.pause, hang=given.hang)
    options = ("--slots", slots, "--queue", slots, "--context", "1024", "--prefix-memory", "16MB")
    with ServedProcess(*options, variables={"MALLOC_ARENA_MAX": "1"}) as server:
        use(server, answers, report, 0, seconds=min(5.0, given.round))  # programs are recorded, threads begin
        before, end, number = server.usage(), time.monotonic() + 60 * given.minutes, 0
        print(f"before: {before}", flush=True)
        while time.monotonic() < end:
            number += 1
            use(server, answers, report, 1000 * given.seed + clients * number, seconds=given.round)
            now = server.usage()
            print(f"{number}: {now['memory'] / 1e6:.0f} MB, {now}, {dict(report.counts)}", flush=True)
            if number == 1:
                before = before | {"memory": now["memory"]}
            if now["memory"] > before["memory"] + LEAK:
                report.find(f"memory: {before['memory']} bytes at first, now {now['memory']}")
            if now["threads"] > before["threads"] + WORKERS or now["files"] > before["files"]:
                report.find(f"threads and files: expected those of {before}, got {now}")
        server.signal(signal.SIGTERM)
        status, said = server.ended()
        said = "".join(line for line in said.splitlines(True) if "Invalid HTTP request" not in line)
        if (status, said) != (0, ""):
            report.find(f"the server ended with status {status} and said: {said}")
    if report.most_running < given.slots:
        report.find(f"conversations at once: expected {given.slots}, got at most {report.most_running}")
    print(f"{number} rounds, {len(report.findings)} findings: {dict(report.counts)}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
