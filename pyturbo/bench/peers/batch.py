"""Decoding in several conversations at once, beside llama.cpp, and beside one conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from pyturbo.bench.peers import random_moe
from pyturbo.bench.peers.plan import LLAMA, Plan, contenders
from pyturbo.bench.peers.rounds import Speeds, Tell, decoding, in_turns, prefilling, ratio
from pyturbo.bench.peers.rows import PRECISIONS, Report, Row, beside_peers, failures, name_of

CONVERSATIONS = (1, 4, 8, 16)

#: Ratios to llama.cpp with as many conversations.
PEER_GOALS = {LLAMA: {"default": 1.5, "fast": 1.5}}

#: Ratios to the speed of one conversation.
GAIN_GOALS = {8: 2.5, 16: 3.0}

#: Of the gain that follows from the bytes of distinct experts.
EXPERTS_AT_ONCE, EXPERT_GOAL = 8, 0.8


def batch(plan: Plan, report: Report, tell: Tell) -> None:
    """Decode in several conversations of a GGUF file at once, with the most threads of the plan.

    A prompt shares each read of the weights among more tokens than conversations do: rows of gains say how
    near its speed they come.
    """
    threads, name = max(plan.threads), plan.gguf.stem
    most = max(CONVERSATIONS)
    with contenders(plan, report, threads, plan.gguf, {LLAMA: plan.gguf}, tell, conversations=most) as ready:
        ours = [contender for contender in ready if contender.name != LLAMA]
        prompts = in_turns(ours, plan.rounds, prefilling(plan.prompt), tell)
        alone: list[Speeds] = []
        for count in CONVERSATIONS:
            turn = decoding(plan.context, plan.tokens, conversations=count)
            speeds = in_turns(ready, plan.rounds, turn, partial(_tell, tell, count))
            alone = alone or speeds
            report.rows += beside_peers(f"decode {name}, {count} at once", threads, speeds, PEER_GOALS)
            if count in GAIN_GOALS:
                work = f"gain of {count} at once, {name}"
                gains = _gains(work, threads, alone, speeds, GAIN_GOALS[count])
                report.rows += [_beside_prompt(row, prompts) for row in gains]


def batch_experts(plan: Plan, report: Report, tell: Tell, shape: random_moe.Shape = random_moe.LARGE) -> None:
    """Do the same with layers of a large mixture of experts, without a peer."""
    threads, count = max(plan.threads), EXPERTS_AT_ONCE
    with TemporaryDirectory() as folder:
        tell("writing random weights")
        model, arrays = Path(folder) / "large", random_moe.tensors(shape)
        random_moe.write(model, shape, arrays)
        goal = EXPERT_GOAL * allowed_gain(shape, arrays, count)
        del arrays
        with contenders(plan, report, threads, model, {}, tell, conversations=count) as ready:
            alone, many = (
                in_turns(ready, plan.rounds, decoding(plan.context, plan.tokens, conversations=n), tell)
                for n in (1, count)
            )
    work = f"gain of {count} at once, layers of Qwen3.6-35B-A3B"
    report.rows += _gains(work, threads, alone, many, goal)


def allowed_gain(shape: random_moe.Shape, arrays: Mapping[str, NDArray[Any]], count: int) -> float:
    """Return the gain of `count` conversations if time is spent on bytes alone.

    Tokens choose experts at random, so several have some of them in common.
    """
    experts = sum(array.nbytes for name, array in arrays.items() if ".switch_mlp." in name) / shape.experts
    others = sum(
        array.nbytes
        for name, array in arrays.items()
        if ".switch_mlp." not in name and ".embed_tokens." not in name
    )
    distinct = shape.experts * (1 - (1 - shape.chosen / shape.experts) ** count)
    return count * (others + shape.chosen * experts) / (others + distinct * experts)


def _tell(tell: Tell, count: int, text: str) -> None:
    tell(f"{count} at once, {text}")


def _gains(work: str, threads: int, alone: list[Speeds], many: list[Speeds], goal: float) -> list[Row]:
    """Return the ratio of the speeds of many conversations and of one, for each precision."""
    one, all_of_them = ({speed.name: speed for speed in speeds} for speeds in (alone, many))
    rows = []
    for precision in PRECISIONS:
        ours = all_of_them[name_of(precision)]
        row = Row(work, threads, precision, ours.best, "tok/s", goal, "ratio", note=failures(ours))
        rows.append(replace(row, ratio=ratio(ours, one[name_of(precision)])))
    return rows


def _beside_prompt(row: Row, prompts: list[Speeds]) -> Row:
    """Return a row that says how near the speed of a prompt its figure comes."""
    (best,) = (speeds.best for speeds in prompts if speeds.name == name_of(row.precision))
    if row.figure is None or best is None:
        return row
    share = f"{row.figure / best:.0%} of a prompt's {best:.0f} tok/s"
    return replace(row, note="; ".join(filter(None, (row.note, share))))
