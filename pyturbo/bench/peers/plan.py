"""The parameters of a comparison, and its contenders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyturbo.bench.gguf import gguf_file
from pyturbo.bench.peers.contender import Contender
from pyturbo.bench.peers.rounds import Tell
from pyturbo.bench.peers.rows import PRECISIONS, Report, name_of

LLAMA, MLX = "llama.cpp", "mlx-lm"
_KINDS = {LLAMA: "llama", MLX: "mlx"}


@dataclass(frozen=True)
class Plan:
    """Parameters of a comparison. `model` is a GGUF file; None means SmolLM2, if its package is installed."""

    model: Path | None = None
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 5
    tokens: int = 32  # to decode in a turn
    context: int = 64  # tokens read before that
    prompt: int = 512  # tokens to prefill in a turn

    @property
    def room(self) -> int:
        """The context of every contender, in tokens."""
        return max(self.prompt, self.context + self.tokens)

    @property
    def gguf(self) -> Path:
        return gguf_file(self.model)


@contextmanager
def contenders(
    plan: Plan,
    report: Report,
    threads: int,
    model: Path,
    peers: dict[str, Path],
    tell: Tell,
    **options: int,
) -> Iterator[list[Contender]]:
    """Load pyturbo in both precisions with `model`, and peers with their files, and warm them up."""
    with ExitStack() as stack:
        ready: list[Contender] = []

        def add(name: str, kind: str, **own: str) -> None:
            tell(f"loading {name}")
            contender = stack.enter_context(Contender(name, kind, threads))
            contender.load(threads=threads, room=plan.room, **options, **own)
            report.facts[name] = contender.facts
            ready.append(contender)

        for precision in PRECISIONS:
            add(name_of(precision), "pyturbo", path=str(model), precision=precision)
        for name, path in peers.items():
            add(name, _KINDS[name], path=str(path))
        yield ready
