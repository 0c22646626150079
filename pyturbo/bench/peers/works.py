"""The works that are measured, by the name that selects each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyturbo.bench import memory
from pyturbo.bench.peers import busy, random_gguf, random_moe
from pyturbo.bench.peers.batch import batch, batch_experts
from pyturbo.bench.peers.limited import limited
from pyturbo.bench.peers.plan import LLAMA, MLX, Plan, contenders
from pyturbo.bench.peers.q4_k_m import q4_k_m
from pyturbo.bench.peers.quiet import Watch, require_quiet
from pyturbo.bench.peers.rounds import Tell, decoding, in_turns, prefilling
from pyturbo.bench.peers.rows import Report, Row, alone, beside_peers, shares, without_ratio

#: Ratios, by peer and precision.
DECODE_GOALS = {LLAMA: {"default": 1.5, "fast": 2.0}}
PREFILL_GOALS = {LLAMA: {"default": 1.5, "fast": 1.5}}
LARGE_GOALS = {MLX: {"default": 20.0, "fast": 20.0}, LLAMA: {"default": 1.3, "fast": 1.3}}

LARGE_NAME = "layers of Qwen3.6-35B-A3B"

SMALL_GOAL = 1000.0  # tokens per second
BUSY_GOAL = 0.45  # of the idle speed


def decode(plan: Plan, report: Report, tell: Tell) -> None:
    """Decode with a GGUF file."""
    for threads in plan.threads:
        with contenders(plan, report, threads, plan.gguf, {LLAMA: plan.gguf}, tell) as ready:
            speeds = in_turns(ready, plan.rounds, decoding(plan.context, plan.tokens), tell)
        report.rows += beside_peers(f"decode {plan.gguf.stem}", threads, speeds, DECODE_GOALS)


def prefill(plan: Plan, report: Report, tell: Tell) -> None:
    """Prefill with a GGUF file."""
    for threads in plan.threads:
        with contenders(plan, report, threads, plan.gguf, {LLAMA: plan.gguf}, tell) as ready:
            speeds = in_turns(ready, plan.rounds, prefilling(plan.prompt), tell)
        what = f"prefill {plan.prompt} {plan.gguf.stem}"
        report.rows += beside_peers(what, threads, speeds, PREFILL_GOALS)


def matvec(plan: Plan, report: Report, tell: Tell) -> None:
    """Measure 4-bit products of one token as shares of the memory bandwidth."""
    tell("reading and multiplying in turns")
    for speed in memory.matvec(thread_counts=plan.threads):
        what = f"matvec {speed.what}, of bandwidth"
        figures = (speed.threads, speed.precision, speed.share, "share", speed.goal, "figure")
        report.rows.append(Row(what, *figures))  # type: ignore[arg-type]


def small(plan: Plan, report: Report, tell: Tell) -> None:
    """Decode with a mixture of experts of about 20 million parameters."""
    tokens = min(
        8 * plan.tokens, plan.room - plan.context
    )  # they are fast, and a turn should not be too short
    with TemporaryDirectory() as folder:
        model = Path(folder) / "small"
        random_moe.write(model, random_moe.SMALL, random_moe.tensors(random_moe.SMALL))
        for threads in plan.threads:
            with contenders(plan, report, threads, model, {}, tell) as ready:
                speeds = in_turns(ready, plan.rounds, decoding(plan.context, tokens), tell)
            report.rows += alone("decode qwen3_5_moe of 20M", threads, speeds, SMALL_GOAL)


def large(plan: Plan, report: Report, tell: Tell, shape: random_moe.Shape = random_moe.LARGE) -> None:
    """Decode and prefill with layers of a large mixture of experts, with the most threads of the plan."""
    threads = max(plan.threads)
    with TemporaryDirectory() as folder:
        tell("writing random weights")
        model, gguf = Path(folder) / "large", Path(folder) / "large.gguf"
        arrays = random_moe.tensors(shape)
        random_moe.write(model, shape, arrays)
        random_gguf.write(gguf, shape, arrays)
        del arrays
        with contenders(plan, report, threads, model, {MLX: model, LLAMA: gguf}, tell) as ready:
            speeds = in_turns(ready, plan.rounds, decoding(plan.context, plan.tokens), tell)
            report.rows += beside_peers(f"decode {LARGE_NAME}", threads, speeds, LARGE_GOALS)
            speeds = in_turns(ready, plan.rounds, prefilling(plan.prompt), tell)
            report.rows += beside_peers(f"prefill {plan.prompt} {LARGE_NAME}", threads, speeds, LARGE_GOALS)


def one_core_busy(plan: Plan, report: Report, tell: Tell) -> None:
    """Decode with a GGUF file while another process uses a core, as a share of the speed without it."""
    threads = max(plan.threads)
    with contenders(plan, report, threads, plan.gguf, {LLAMA: plan.gguf}, tell) as ready:
        turn = busy.share_of_idle(decoding(plan.context, plan.tokens))
        speeds = in_turns(ready, plan.rounds, turn, tell)
    report.rows += shares(
        f"decode {plan.gguf.stem}, one core busy, of idle", threads, speeds, LLAMA, BUSY_GOAL
    )


WORKS: dict[str, Callable[[Plan, Report, Tell], None]] = {
    "decode": decode,
    "prefill": prefill,
    "matvec": matvec,
    "small": small,
    "large": large,
    "busy": one_core_busy,
    "limited": limited,
    "q4_k_m": q4_k_m,
    "batch": batch,
    "batch_experts": batch_experts,
}


def measure(plan: Plan, only: Sequence[str], tell: Tell, *, quiet_check: bool = False) -> Report:
    """Measure the works named in `only`, keys of `WORKS`; all of them if it is empty.

    `quiet_check` refuses to begin while other processes use the processors. If they do later, the rows of the
    work have no ratios.
    """
    report = Report()
    for name in only or WORKS:
        if quiet_check:
            tell(f"{name}: watching other processes")
            require_quiet()
            watch, first = Watch(), len(report.rows)
        WORKS[name](plan, report, partial(_tell_of, tell, name))
        if quiet_check and not (others := watch.others()).quiet:
            report.rows[first:] = [without_ratio(row, str(others)) for row in report.rows[first:]]
    return report


def _tell_of(tell: Tell, work: str, text: str) -> None:
    tell(f"{work}: {text}")
