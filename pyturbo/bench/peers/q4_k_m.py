"""A qwen2 of 1.5 billion parameters in Q4_K_M, the same file for both engines: speed, loading and memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyturbo.bench.peers import random_qwen2
from pyturbo.bench.peers.contender import Contender
from pyturbo.bench.peers.plan import LLAMA, Plan, contenders
from pyturbo.bench.peers.rounds import Speeds, Tell, decoding, in_turns, prefilling
from pyturbo.bench.peers.rows import PRECISIONS, Report, beside_peers, costs, name_of

NAME = "qwen2 1.5B Q4_K_M"

DECODE_GOALS = {LLAMA: {"default": 1.4, "fast": 1.6}}
PREFILL_GOALS = {LLAMA: {"default": 1.5, "fast": 2.0}}
LOAD_GOAL = 1.5  # seconds
SPARE = 150.0  # megabytes that may be resident beside the file, state and scratch

_LOADS = 3  # rounds of loading, at most
_ROOM = 64  # tokens that are read after loading, so that every weight has been used
_CHUNK = 8 << 20


def q4_k_m(plan: Plan, report: Report, tell: Tell, shape: random_qwen2.Shape = random_qwen2.SHAPE) -> None:
    """Load with the most threads of the plan, then decode and prefill with each number of them."""
    with TemporaryDirectory() as folder:
        tell("writing random weights")
        path = Path(folder) / "model.gguf"
        random_qwen2.write(path, shape)
        _loading(plan, report, tell, path)
        for threads in plan.threads:
            with contenders(plan, report, threads, path, {LLAMA: path}, tell) as ready:
                speeds = in_turns(ready, plan.rounds, decoding(plan.context, plan.tokens), tell)
                report.rows += beside_peers(f"decode {NAME}", threads, speeds, DECODE_GOALS)
                speeds = in_turns(ready, plan.rounds, prefilling(plan.prompt), tell)
                report.rows += beside_peers(f"prefill {plan.prompt} {NAME}", threads, speeds, PREFILL_GOALS)


def _loading(plan: Plan, report: Report, tell: Tell, path: Path) -> None:
    """Load in a fresh process each time, with the file in the page cache."""
    threads = max(plan.threads)
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass
    kinds = {name_of(precision): ("pyturbo", {"precision": precision}) for precision in PRECISIONS}
    kinds[LLAMA] = ("llama", {})
    seconds, megabytes = ({name: Speeds(name) for name in kinds} for _ in range(2))
    limits = dict.fromkeys(PRECISIONS, path.stat().st_size / 1e6 + SPARE)
    for number in range(min(plan.rounds, _LOADS)):
        for name, (kind, options) in kinds.items():
            tell(f"loading {name}, round {number + 1}")
            with Contender(name, kind, threads) as contender:
                contender.load(threads=threads, room=_ROOM, path=str(path), **options)
                seconds[name].failure = megabytes[name].failure = contender.failure
                if "seconds" in contender.loaded:
                    seconds[name].rounds.append(contender.loaded["seconds"])
                if "resident" in contender.loaded:
                    megabytes[name].rounds.append(contender.loaded["resident"])
                if number == 0 and "precision" in options:
                    limits[options["precision"]] += contender.loaded.get("beside weights", 0.0)
    report.rows += costs(
        f"load {NAME}", threads, "s", [*seconds.values()], LLAMA, dict.fromkeys(PRECISIONS, LOAD_GOAL)
    )
    report.rows += costs(f"resident {NAME}", threads, "MB", [*megabytes.values()], LLAMA, limits)
