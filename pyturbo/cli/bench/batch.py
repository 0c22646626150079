"""``pyturbo bench batch``: several conversations at once, beside one and beside llama.cpp."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from pyturbo.bench.host_steps import host_steps
from pyturbo.bench.peers.plan import Plan
from pyturbo.bench.peers.works import measure
from pyturbo.cli import _output
from pyturbo.cli._signals import exit_when_terminated
from pyturbo.cli._usage import at_least_one, counts
from pyturbo.cli.bench.peers import table
from pyturbo.model import load

HELP = (
    "speeds of several conversations at once: of SmolLM2 beside llama.cpp, of layers of a large mixture of "
    "experts, and the host's own time in a step"
)

#: Conversations at once, for the time of the host.
HOST_COUNTS = (1, 8, 32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=counts, metavar="N,N,...", help="the most of these is used (default: 2)"
    )
    parser.add_argument("--rounds", type=int, help=f"number of rounds (default: {Plan.rounds})")
    parser.add_argument(
        "--tokens", type=int, help=f"number of tokens to decode in a turn (default: {Plan.tokens})"
    )
    parser.add_argument(
        "--quiet-check",
        action="store_true",
        help="refuse to compare while other processes use the cores, and say which",
    )


def run(arguments: argparse.Namespace) -> None:
    at_least_one("--rounds", arguments.rounds)
    at_least_one("--tokens", arguments.tokens)
    plan = Plan(
        threads=arguments.threads or Plan.threads,
        rounds=arguments.rounds or Plan.rounds,
        tokens=arguments.tokens or Plan.tokens,
    )
    with exit_when_terminated(), _output.telling() as tell:
        report = measure(plan, ("batch", "batch_experts"), tell, quiet_check=arguments.quiet_check)
        tell("the host's own time")
        with load(threads=max(plan.threads)) as model:
            steps = host_steps(model, HOST_COUNTS)
    rows = [asdict(row) | {"met": row.met} for row in report.rows]
    report.facts["host"] = {
        f"{step.conversations} at once:": f"{step.host_us:.0f} of {step.step_us:.0f} us a step"
        for step in steps
    }
    shown = {"rows": rows, "facts": report.facts, "host": [asdict(step) for step in steps]}
    _output.show(arguments, shown, lambda: table(report))
