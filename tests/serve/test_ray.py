"""Replicas on two nodes: prompts find who has read them, and a lost replica takes nobody along."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

PROGRAM = Path(__file__).parents[1] / "ray_cluster.py"
LONG = {"max_tokens": 400, "ignore_eos": True}  # each token passes through three processes

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {
        "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "5",  # replicas share two cores with other tests
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("LD_PRELOAD", None)
    environment.pop("MALLOC_CHECK_", None)
    command = [sys.executable, str(PROGRAM), str(port)]  # replicas import what is in its folder
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env=environment, cwd=tmp_path) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        lines: list[str] = []
        for line in cluster.stdout:
            lines.append(line)
            if line.startswith("http://"):
                break
        else:
            pytest.fail(f"the cluster does not start: {''.join(lines)}{cluster.communicate()[1]}")
        with httpx.Client(base_url=lines[-1].strip(), timeout=300) as client:
            yield client
        cluster.stdin.close()
        cluster.stdin = None
        cluster.communicate(timeout=120)


def replicas(client: httpx.Client) -> set[str]:
    """Ask with different prompts, several at a time, until both replicas have answered."""
    found: set[str] = set()
    end = time.monotonic() + 300
    while len(found) < 2:
        assert time.monotonic() < end, "only one replica answers"
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(lambda _: ask(client, f"At {time.monotonic()} o'clock " + "x" * 300), range(4))
        found |= {answer.headers["x-process"] for answer in answers if answer.status_code == 200}
    return found


def ask(client: httpx.Client, prompt: str, max_tokens: int = 30) -> httpx.Response:
    return client.post("/v1/completions", json={"prompt": prompt, "max_tokens": max_tokens})


def a_prompt_goes_to_who_has_read_its_beginning(client: httpx.Client) -> None:
    replicas(client)
    story = "Once upon a time there was a fox who lived in a wood. " * 12
    answers = [ask(client, story, 4) for _ in range(13)]
    assert answers[0].status_code == 200, answers[0].text
    (process, count), *_ = Counter(each.headers["x-process"] for each in answers).most_common()
    assert count >= 11  # Ray asks another one if a replica does not say in time how busy it is
    *_, last = (each for each in answers if each.headers["x-process"] == process)
    assert last.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


def errors_and_lists_pass_through(client: httpx.Client) -> None:
    assert client.get("/v1/models").json()["data"][0]["id"] == "stories"
    wrong = client.post("/v1/completions", json={"prompt": "x", "bogus": 1})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "bogus")


class Streamed(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, client: httpx.Client, prompt: str) -> None:
        super().__init__()
        self.client, self.prompt = client, prompt
        self.process, self.lines, self.begun = "", [], threading.Event()  # type: str, list[str], threading.Event

    def run(self) -> None:
        body = {"prompt": self.prompt, "stream": True, **LONG}
        with self.client.stream("POST", "/v1/completions", json=body) as answer:
            self.process = answer.headers["x-process"]
            for line in answer.iter_lines():
                self.lines += [line] if line else []
                self.begun.set()


def a_lost_replica_takes_nobody_along(client: httpx.Client) -> None:
    """A reply of which something was sent ends with an error, another one is written again elsewhere."""
    replicas(client)
    story = "The king had three sons, and the youngest of them was called Tom. " * 12
    ask(client, story, 1)  # who reads it here is asked to continue it below
    prompts = [*(f"Number {i}: " + "once upon a time " * 20 for i in range(3)), story]
    streams = [Streamed(client, prompt) for prompt in prompts]
    for stream in streams:
        stream.start()
    for stream in streams:
        assert stream.begun.wait(120)
    lost = streams[-1].process
    answers: list[httpx.Response] = []
    body = {"prompt": story, **LONG}
    unsent = threading.Thread(target=lambda: answers.append(client.post("/v1/completions", json=body)))
    unsent.start()
    time.sleep(0.2)
    os.kill(int(lost), signal.SIGKILL)
    for stream in streams:
        stream.join(300)
        assert not stream.is_alive()
        is_whole = stream.lines[-1] == "data: [DONE]"
        assert is_whole or (stream.process == lost and "the machine that wrote" in stream.lines[-1])
    assert "the machine that wrote this reply was lost" in streams[-1].lines[-1]
    unsent.join(300)
    (answer,) = answers
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-process"] != lost
    assert answer.json()["usage"]["completion_tokens"] == LONG["max_tokens"]
    assert lost not in replicas(client)


def test_replicas(client: httpx.Client) -> None:
    """One after the other: starting a cluster takes as long as all of this."""
    a_prompt_goes_to_who_has_read_its_beginning(client)
    errors_and_lists_pass_through(client)
    a_lost_replica_takes_nobody_along(client)
