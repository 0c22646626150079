"""The process `pyturbo serve`: how it starts, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import pyturbo
from processes import environment
from pyturbo._messages import size
from pyturbo.checkpoint import open_checkpoint
from pyturbo.describe import survey
from pyturbo.model import default_model

from .served_process import ServedProcess, events, refuses
from .small_server import until

#: Takes some seconds, because the processor is one of several that are busy.
LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 1900, "stream": True, "ignore_eos": True}
SHORT: dict[str, Any] = LONG | {"max_tokens": 300}

pytestmark = pytest.mark.slow


def test_replies_go_on_after_a_signal_and_nothing_new_is_accepted() -> None:
    with ServedProcess("--drain-seconds", "60") as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=SHORT, timeout=60) as answer:
            found = events(answer)
            next(found)
            server.signal(signal.SIGTERM)
            time.sleep(0.5)
            assert refuses(server.port)
            *_, last, done = found
        assert (last["choices"][0]["finish_reason"], last["timings"]["tokens"]) == ("length", 300)
        assert done == "[DONE]"
        assert server.ended(10) == (0, "")


def test_connections_that_wait_for_a_request_do_not_hold_up_the_end() -> None:
    with ServedProcess("--drain-seconds", "60") as server, httpx.Client() as client:
        assert client.get(f"{server.url}/health").status_code == 200
        with socket.create_connection(("127.0.0.1", server.port)):
            server.signal(signal.SIGTERM)
            assert server.ended(10) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_replies_that_take_too_long_end_with_an_error(number: signal.Signals) -> None:
    with ServedProcess("--drain-seconds", "1", "--slots", "1") as server:
        waits = httpx.Client(timeout=60).build_request(
            "POST", f"{server.url}/v1/completions", json=LONG | {"stream": False}
        )
        with httpx.stream("POST", f"{server.url}/v1/completions", json=LONG, timeout=60) as answer:
            found = events(answer)
            next(found)
            queued = socket.create_connection(("127.0.0.1", server.port))
            body = waits.read()
            queued.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n")
            queued.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
            while server.counts() != (1, 1):
                time.sleep(0.01)
            server.signal(number)
            began = time.monotonic()
            *_, last = found
        assert last["error"]["code"] == "shutting_down"
        assert "closed" in last["error"]["message"]
        queued.settimeout(20)
        told = b"".join(iter(lambda: queued.recv(4096), b""))
        queued.close()
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"shutting_down" in told
        assert server.ended(10) == (0, "")
        assert 0.9 < time.monotonic() - began < 8


def test_replies_end_with_an_error_while_a_long_prompt_is_read() -> None:
    """A piece of a prompt may take long, and cannot be interrupted."""
    script = (
        "import time\nfrom pyturbo.batching import member\nread = member.read_alone\n"
        "member.read_alone = lambda *given: (time.sleep(8), read(*given))"
    )
    asked = LONG | {"prompt": "word " * 300, "max_tokens": 9}
    with ServedProcess("--drain-seconds", "1", script=script) as server, ThreadPoolExecutor(2) as pool:
        post = partial(httpx.post, f"{server.url}/v1/completions", timeout=60)
        answers = [pool.submit(post, json=asked | {"stream": stream}) for stream in (True, False)]
        until(lambda: sum(server.counts()) == 2)
        server.signal(signal.SIGTERM)
        began = time.monotonic()
        streamed, whole = (answer.result(60) for answer in answers)
        assert time.monotonic() - began < 6
        *_, last = events(streamed)
        assert last["error"]["code"] == "shutting_down"
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "shutting_down")
        assert server.ended(30) == (0, "")


def test_prompts_that_take_long_to_encode_hold_up_neither_others_nor_the_end(tmp_path: Path) -> None:
    script = (
        "import time\nfrom pyturbo.text import Tokenizer\nencode = Tokenizer.encode\n"
        "def slow(self, text, *more):\n"
        "    if text.startswith('Slow'):\n"
        f"        open({str(tmp_path)!r} + '/' + text, 'w').close()\n"
        "        time.sleep(60)\n"
        "    return encode(self, text, *more)\n"
        "Tokenizer.encode = slow"
    )
    with ServedProcess("--drain-seconds", "1", script=script) as server, ThreadPoolExecutor(9) as pool:
        post = partial(httpx.post, f"{server.url}/v1/completions", timeout=60)
        slow = [pool.submit(post, json=LONG | {"prompt": f"Slow {i}"}) for i in range(2)]
        until(lambda: all((tmp_path / f"Slow {i}").exists() for i in range(2)))
        assert post(json=SHORT | {"max_tokens": 3, "stream": False}).status_code == 200
        server.signal(signal.SIGTERM)
        assert server.ended(20) == (0, "")
        for each in slow:
            assert each.exception(20) is not None


def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    with ServedProcess("--drain-seconds", "1") as server, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        body = b'{"prompt": "A", "max_tokens": 2000, "ignore_eos": true, "stream": true, "logprobs": 20}'
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n")
        slow.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
        while server.counts() != (1, 0):
            time.sleep(0.01)
        time.sleep(1)
        server.signal(signal.SIGTERM)
        assert server.ended(15) == (0, "")


def test_a_second_interrupt_ends_it_at_once() -> None:
    with (
        ServedProcess("--drain-seconds", "600") as server,
        httpx.stream("POST", f"{server.url}/v1/completions", json=LONG, timeout=60) as answer,
    ):
        found = events(answer)
        next(found)
        server.signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.signal(signal.SIGINT)
        began = time.monotonic()
        assert server.ended(10) == (130, "")
        assert time.monotonic() - began < 5


def ended(*arguments: str, script: str = "", variables: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the command, which ends at once, and return its status and what it said."""
    code = f"{script}\nimport sys\nfrom pyturbo.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *arguments],
        env=environment(heap_checks=False) | (variables or {}),
        cwd=Path(__file__).anchor,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = ended("--port", str(port))
    assert (status, said) == (1, f"pyturbo: port {port} of 127.0.0.1: address already in use\n")


def test_a_missing_extra_is_one_line_that_names_it() -> None:
    status, said = ended(script="import sys; sys.modules['starlette'] = None")
    assert status == 1
    assert said.count("\n") == 1
    assert 'pip install "pyturbo-llm[serve]"' in said


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("/no/such/model",), 1, "/no/such/model"),
        (("--port", "-1"), 2, "--port: expected an integer from 0 to 65535, got -1"),
        (("--port", "65536"), 2, "--port: expected an integer from 0 to 65535, got 65536"),
        (("--slots", "0"), 2, "--slots: expected an integer from 1 on, got 0"),
        (("--state-memory", "0"), 2, "--state-memory: expected 1 to 2^63 - 1 bytes, got '0'"),
        (("--state-memory", "1MB"), 2, "a conversation of 4096 tokens (--context), got 1.0 MB"),
        (("--host", "no.such.host.invalid"), 1, "no.such.host.invalid: expected a name or address"),
        (("--api-key-file", "/no/such/file"), 2, "--api-key-file: /no/such/file: cannot be read"),
        (("--api-key-file", "/dev/null"), 2, "expected at least one key, got an empty file"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], status: int, message: str) -> None:
    found, said = ended(*arguments)
    assert (found, said.count("\n")) == (status, 1), said
    assert message in said


def test_a_small_machine_has_few_conversations_at_once(tmp_path: Path) -> None:
    """Others wait, or are refused if they are too long; without a limit the system would end the process."""
    with pyturbo.load(device="cpu") as model:
        conversation, longest = (model.runner.layout(context).nbytes for context in (512, 2048))
    with open_checkpoint(default_model()) as checkpoint:
        weights = survey(checkpoint).mapped_bytes + survey(checkpoint).copied_bytes
    free = tmp_path / "meminfo"
    free.write_text(f"MemAvailable: {(weights + 3 * conversation) // 1024} kB\n")
    assert longest > 3 * conversation / 2 > conversation
    script = f"import pathlib, pyturbo._machine\npyturbo._machine._MEMORY = pathlib.Path({str(free)!r})"
    with ServedProcess("--context", "512", script=script) as server, ExitStack() as asking:
        assert f"; {size(3 * conversation / 2)} for one conversation at a time; " in server.said[0]
        post = partial(httpx.stream, "POST", f"{server.url}/v1/completions", timeout=60)
        for _ in range(4):
            asking.enter_context(post(json=LONG | {"max_tokens": 400}))
        assert server.counts() == (1, 3)  # of eight slots
        with post(json=LONG) as answer:
            answer.read()
            assert answer.status_code == 400
            assert "the memory of the engine" in answer.json()["error"]["message"]


def test_every_model_has_room_for_a_conversation(tmp_path: Path) -> None:
    """The free memory is less than that of one; the second model is loaded when it is asked for."""
    with pyturbo.load(device="cpu") as model:
        conversation = model.runner.layout(2048).nbytes
    folder, free = default_model(), tmp_path / "meminfo"
    free.write_text(f"MemAvailable: {conversation // 2 // 1024} kB\n")
    script = f"import pathlib, pyturbo._machine\npyturbo._machine._MEMORY = pathlib.Path({str(free)!r})"
    models = (f"first={folder}", f"second={folder}")
    with ServedProcess(*models, "--context", "2048", script=script) as server:
        assert f"; {size(conversation)} for one conversation at a time; " in server.said[0]
        for name in ("first", "second"):
            body = {"model": name, "prompt": "Once upon a", "max_tokens": 3, "temperature": 0}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            assert (answer.status_code, answer.json()["choices"][0]["text"]) == (200, " time, there")


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first\n\n  second \n two words\nschl\u00fcssel-\U0001f511\n", encoding="utf-8")
    with ServedProcess("--api-key-file", str(file), variables={"PYTURBO_API_KEY": "third"}) as server:
        for key in ("first", "second", "third", "two words", "schl\u00fcssel-\U0001f511"):
            for headers in ({"Authorization": f"Bearer {key}".encode()}, {"x-api-key": key.encode()}):
                assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        answers = [
            httpx.get(f"{server.url}/v1/models", headers=headers)
            for headers in ({}, {"x-api-key": "fourth"}, {"Authorization": "Basic first"}, {"x-api-key": ""})
        ]
        assert [answer.status_code for answer in answers] == [401] * 4
        assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
        assert {answer.json()["error"]["code"] for answer in answers} == {"invalid_api_key"}
        assert httpx.get(f"{server.url}/health").status_code == 200
