"""A long run of streamed models under random use, not part of the tests: python tests/soak.py MINUTES.

Threads converse with tiny packed models at random numbers of slots: they read, write, fork, rewind, save,
load and cancel, while reads fail at random and models are closed and opened again. Every session has a twin
of the resident model, whose tokens and logits it must have, bit for bit. Beside them a process runs a larger
model within a budget, which its memory must never exceed.

Prints a summary. The status is 1 if a token was wrong, an error was none of those that are allowed, something
hung, a budget was exceeded, or memory, files or threads were left after all models were closed.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyturbo
from packed_models import least_memory, streamed, write_large, write_packed
from pyturbo import _native_tests
from pyturbo._machine import used_memory
from pyturbo.engine.session import Session
from pyturbo.errors import AllocationError, FileError, StateError
from pyturbo.model import Model
from pyturbo.streaming import Policy

NAMES = ("qwen3_5_moe", "qwen3_next", "qwen3_moe", "deepseek_v3", "gpt_oss")
THREADS = 3
EPOCH = 20.0  # seconds between two closings of everything
HANG = 180.0  # seconds after which a thread counts as hanging
CONTEXTS = (96, 128, 200)
LEAK = 12 << 20  # bytes by which the process may grow after its second epoch
ANSWERS = "answers.json"
FAULTS = (
    ("error", errno.EIO),
    ("error", errno.EINTR),
    ("error", errno.EBADF),
    ("short", 1000),
    ("short", 4096),
    ("end", 0),
    ("slow", 3),
    ("direct", 0),
)


@dataclass
class Report:
    """What happened. Any thread."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def find(self, what: str) -> None:
        with self._lock:
            self.findings.append(what)
        print(f"FINDING: {what}", flush=True)


def options(rng: random.Random) -> dict[str, Any]:
    """Return random settings of a policy."""
    return {
        "threads": rng.choice([1, 2, 4, 8]),
        "split": rng.choice([0, 4096, 16384]),
        "direct": rng.random() < 0.7,
        "half_life": rng.choice([2.0, 32.0]),
        "staging": rng.choice([None, None, 0, 1, 3]),
        "ahead": rng.random() < 0.6,
    }


class Subject:
    """A resident model, and a streamed one that is closed and opened again."""

    def __init__(self, name: str, resident: Model, packed: Path) -> None:
        self.name, self.resident, self._packed = name, resident, packed
        self._lock = threading.Lock()
        self.model: Model | None = None
        for context in CONTEXTS:  # records the programs, so that the process does not grow later
            resident.generate(range(1, 60), 3, session=resident.session(context))

    def open(self, rng: random.Random) -> None:
        model = streamed(self._packed, "cpu", rng.choice([1, 2, 3, 5, 8, 11, 40]), **options(rng))
        with self._lock:
            before, self.model = self.model, model
        if before is not None:
            before.close()

    def close(self) -> None:
        with self._lock:
            model, self.model = self.model, None
        if model is not None:
            model.close()


class Actor:
    """A thread that uses random sessions of random models, each beside its twin."""

    def __init__(self, seed: int, subjects: list[Subject], report: Report, folder: Path) -> None:
        self._rng, self._subjects, self._report = random.Random(seed), subjects, report
        self._file = folder / f"{seed}.session"
        self.thread = threading.Thread(target=self._run, name=f"actor {seed}", daemon=True)
        self.end = 0.0

    def _run(self) -> None:
        try:
            while time.monotonic() < self.end:
                self._converse(self._rng.choice(self._subjects))
        except BaseException:
            self._report.find(f"{self.thread.name}: {traceback.format_exc()}")

    def _converse(self, subject: Subject) -> None:
        model = subject.model
        if model is None:
            time.sleep(0.01)
            return
        try:
            context = self._rng.choice(CONTEXTS)
            pair = model.session(context), subject.resident.session(context)
            for _ in range(self._rng.randrange(1, 9)):
                pair = self._act(subject, model, *pair)
                self._report.count("actions")
            self._compare(subject, *pair)
        except FileError as error:
            if ".bin: expert " not in str(error):
                self._report.find(f"{subject.name}: an error without a record: {error}")
            self._report.count("read errors")
        except StateError as error:
            if "the model is closed" not in str(error):
                self._report.find(f"{subject.name}: {error}")
            self._report.count("uses of a closed model")

    def _act(
        self, subject: Subject, model: Model, session: Session, twin: Session
    ) -> tuple[Session, Session]:
        rng = self._rng
        action = rng.choice(("read", "write", "write", "step", "fork", "save", "rewind", "cancel"))
        vocab = model.network.vocab
        if action == "read" and session.position < 40:
            ids = [rng.randrange(vocab) for _ in range(rng.choice([2, 5, 17, 40]))]
            session.prefill(ids)
            twin.prefill(ids)
        elif action == "write" and 0 < session.position < 80:
            got = model.generate([], 4, session=session, temperature=0.8, seed=3).tokens
            want = subject.resident.generate([], 4, session=twin, temperature=0.8, seed=3).tokens
            self._report.count("tokens", len(got))
            if got != want:
                self._report.find(f"{subject.name}: expected tokens {want}, got {got}")
        elif action == "step" and session.position < 90:
            token = rng.randrange(vocab)
            session.step(token)
            twin.step(token)
        elif action == "fork":
            session, twin = session.fork(), twin.fork()
        elif action == "save" and session.position:
            session.save(self._file)
            session, twin = model.load_session(self._file), subject.resident.load_session(self._file)
        elif action == "rewind" and session.position > 3:
            position = rng.randrange(1, session.position)
            session.rewind(position)
            twin.rewind(position)
        elif action == "cancel" and 0 < session.position < 60:
            self._cancel(subject, model, session.fork(), twin.fork())
        return session, twin

    def _cancel(self, subject: Subject, model: Model, session: Session, twin: Session) -> None:
        """Cancel a reply at a random time; what it has said until then is right."""
        timer = threading.Timer(self._rng.random() * 0.02, session.cancel)
        timer.start()
        try:
            got = model.generate([], 20, session=session).tokens
        finally:
            timer.join()
        want = subject.resident.generate([], 20, session=twin).tokens
        self._report.count("tokens", len(got))
        if got != want[: len(got)]:
            self._report.find(f"{subject.name}: expected tokens {want}, got {got} before a cancel")

    def _compare(self, subject: Subject, session: Session, twin: Session) -> None:
        if session.position and session.logits.tobytes() != twin.logits.tobytes():
            self._report.find(f"{subject.name}: other logits at position {session.position}")
        self._report.count("conversations")


def disturb(stop: threading.Event, rng: random.Random, subjects: list[Subject], report: Report) -> None:
    """Make reads fail, and close and open models, until the end."""
    while not stop.wait(rng.random() * 0.3):
        kind, value = rng.choice(FAULTS)
        _native_tests.fail_reads(kind, value, rng.randrange(200), rng.choice([1, 1, 2, 5]))
        report.count("faults")
        if rng.random() < 0.05:
            rng.choice(subjects).open(rng)
            report.count("models closed in use")
        stop.wait(rng.random() * 0.3)
        _native_tests.plain_reads()


def budgeted(path: Path, answers: Path, seconds: float, seed: int, report: Report) -> None:
    """Run the larger model in a process of its own, and watch its memory from here."""
    rng = random.Random(seed)
    script = (
        f"import soak; soak.converse({str(path)!r}, {str(answers)!r}, {seconds}, {seed}, {rng.randrange(90)})"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    memory = int(started.stdout.readline())
    most = 0
    while started.poll() is None:
        with suppress(OSError, IndexError):
            pages = Path(f"/proc/{started.pid}/statm").read_text().split()[1]
            most = max(most, int(pages) * os.sysconf("SC_PAGE_SIZE"))
        time.sleep(0.003)
    said = started.stdout.read().strip()
    report.count("tokens within a budget", int(said or 0))
    if started.returncode:
        report.find(f"the process with a budget ended with status {started.returncode}")
    if most > memory:
        report.find(f"memory: expected at most {memory} bytes, got {most}")
    print(f"   budget {memory / 1e6:.0f} MB, {most / 1e6:.0f} MB used", flush=True)


def converse(path: str, answers: str, seconds: float, seed: int, more: int) -> None:
    """Run in that process: print the budget, converse in several threads, print the number of tokens."""
    rng, wanted = random.Random(seed), json.loads(Path(answers).read_text())
    memory = least_memory(path, Policy(mode="stream")) + more * 10**6
    print(memory, flush=True)
    model = pyturbo.load(path, "cpu", memory=memory, policy=Policy(mode="stream", **options(rng)))
    end, tokens = time.monotonic() + seconds, Counter[str]()

    def run(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < end:
            prompt, want = rng.choice(wanted)
            try:
                session = model.session(rng.choice([96, 300, 1000]))
                first = rng.randrange(1, len(want))
                got = model.generate(prompt, first, session=session).tokens
                if rng.random() < 0.3:
                    session = session.fork()
                got += model.generate([], len(want) - first, session=session).tokens
            except AllocationError:
                continue
            if got != want:
                print(f"expected {want}, got {got}", file=sys.stderr)
                os._exit(3)
            tokens["all"] += len(got)

    threads = [threading.Thread(target=run, args=(seed + i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.close()
    print(tokens["all"])


def left() -> tuple[int, int]:
    """Return the numbers of threads and of open files."""
    gc.collect()
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


def epoch(subjects: list[Subject], large: Path, seed: int, report: Report, seconds: float) -> None:
    """Open all models, use them for a while, and close them."""
    rng, stop, folder = random.Random(seed), threading.Event(), large.parent
    for subject in subjects:
        subject.open(rng)
    actors = [Actor(seed * THREADS + i, subjects, report, folder) for i in range(THREADS)]
    arguments = (large, folder / ANSWERS, seconds, seed, report)
    helpers = [
        threading.Thread(target=disturb, args=(stop, rng, subjects, report), daemon=True),
        threading.Thread(target=budgeted, args=arguments, daemon=True),
    ]
    for actor in actors:
        actor.end = time.monotonic() + seconds
    threads = [*(actor.thread for actor in actors), *helpers]
    for thread in threads:
        thread.start()
    for actor in actors:
        actor.thread.join(seconds + HANG)
    stop.set()
    for helper in helpers:
        helper.join(HANG)
    if any(thread.is_alive() for thread in threads):
        report.find("a thread hangs")
        faulthandler.dump_traceback()
        os._exit(1)
    _native_tests.plain_reads()
    for subject in subjects:
        subject.close()


def write_answers(path: Path, large: Path) -> None:
    """Write prompts, and what the model with all experts in memory replies to them."""
    rng = random.Random(0)
    prompts = [[rng.randrange(4000) for _ in range(rng.choice([3, 20, 60]))] for _ in range(12)]
    with pyturbo.load(large, "cpu") as model:
        path.write_text(json.dumps([(prompt, model.generate(prompt, 12).tokens) for prompt in prompts]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs streamed models under random use.")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if "MALLOC_ARENA_MAX" not in os.environ:  # free memory in arenas of many threads would look like a leak
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"MALLOC_ARENA_MAX": "1"})
    report, end = Report(), time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        subjects = []
        for model in NAMES:
            source, packed = write_packed(Path(name, model), model)
            subjects.append(Subject(model, pyturbo.load(source, "cpu"), packed))
        large = write_large(Path(name), 120)
        write_answers(large.parent / ANSWERS, large)
        number, before, used_before = 0, (0, 0), 0
        while time.monotonic() < end:
            seed = arguments.seed * 1000 + number
            epoch(subjects, large, seed, report, min(EPOCH, end - time.monotonic()))
            number += 1
            found, used = left(), used_memory()
            print(f"{number}: {dict(report.counts)}, {used / 1e6:.0f} MB, {found}", flush=True)
            if number <= 2:
                before, used_before = found, used
            elif found != before:
                report.find(f"threads and files: expected {before} after closing, got {found}")
            elif used > used_before + LEAK:
                report.find(f"memory after closing: {used_before} bytes after two epochs, now {used}")
    print(f"{number} epochs, {len(report.findings)} findings: {dict(report.counts)}")
    sys.exit(1 if report.findings else 0)


if __name__ == "__main__":
    main()
