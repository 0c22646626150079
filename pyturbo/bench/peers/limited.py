"""Decode and prefill with a mixture of experts of four times the memory that each engine may take.

Every contender runs in a control group that counts its memory, with the pages of files that it has read.
Each round reads another stretch of the text: a second time, the experts that it needs would be in memory.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyturbo._messages import size
from pyturbo.bench.memory_group import MemoryGroup, drop_cached
from pyturbo.bench.peers import random_gguf, random_moe
from pyturbo.bench.peers.contender import Contender
from pyturbo.bench.peers.plan import LLAMA, Plan
from pyturbo.bench.peers.rounds import Speeds, Tell, decoding, in_turns, prefilling
from pyturbo.bench.peers.rows import PRECISIONS, Report, beside_peers, name_of
from pyturbo.bench.stream import synthetic
from pyturbo.errors import FileError, StateError

MAPPED = "pyturbo mapped"
NAMES = (*map(name_of, PRECISIONS), MAPPED, LLAMA)

GOALS = {peer: dict.fromkeys(PRECISIONS, 2.0) for peer in (LLAMA, MAPPED)}

#: Eight layers of Qwen3.6-35B-A3B, with the vocabulary of the text: nearly all weights are experts.
SHAPE = replace(synthetic.SHAPE, layers=8, vocab=8192)

TIMES = 4.0  # how much larger than the memory the experts are

_FILES = 2.25  # bytes of both models, which also have other weights, for each byte of packed experts
_MOUNTS = Path("/proc/self/mountinfo")


def limited(plan: Plan, report: Report, tell: Tell, shape: random_moe.Shape = SHAPE) -> None:
    """Measure with the most threads of the plan. Without limits or room on a disk nothing is measured."""
    what = f"a mixture of experts {TIMES:g}x the memory"
    starts = range(plan.room, (2 * plan.rounds + 1) * plan.room, plan.room)  # loading reads the first stretch
    works = {
        f"decode {what}": decoding(plan.context, plan.tokens, starts[: plan.rounds]),
        f"prefill {plan.prompt} {what}": prefilling(plan.prompt, starts[plan.rounds :]),
    }
    threads, experts = max(plan.threads), synthetic.expert_bytes(shape) * shape.layers
    memory = int(experts / TIMES)
    failed: list[Speeds] = []
    ready: list[Contender] = []
    with ExitStack() as stack:
        try:
            groups = {name: stack.enter_context(MemoryGroup(memory)) for name in NAMES}
            folder = Path(stack.enter_context(TemporaryDirectory()))
            _require_disk(folder, int(experts * _FILES))
        except (FileError, StateError) as error:
            failed = [Speeds(name, failure=str(error)) for name in NAMES]
        else:
            tell("writing random weights")
            _write(folder, shape)
            ids = synthetic.text(starts.stop).tolist()
            common = {"threads": threads, "room": plan.room, "ids": ids}
            for name, (kind, options) in _contenders(folder, memory).items():
                tell(f"loading {name}")
                contender = stack.enter_context(Contender(name, kind, threads, group=groups[name]))
                contender.load(**common, **options)
                report.facts[name] = contender.facts
                ready.append(contender)
        for work, turn in works.items():
            speeds = in_turns(ready, plan.rounds, turn, tell)
            report.rows += beside_peers(work, threads, speeds + failed, GOALS)


def _require_disk(folder: Path, nbytes: int) -> None:
    """Refuse a folder in memory, or one without room for the models."""
    if (kind := _file_system(folder)) in {"tmpfs", "ramfs"}:
        raise FileError(f"{folder}: expected a folder on a disk, got {kind}; TMPDIR names another")
    if (free := shutil.disk_usage(folder).free) < nbytes:
        raise FileError(f"{folder}: expected room for {size(nbytes)}, found {size(free)}")


def _file_system(folder: Path) -> str:
    """Return the type of a folder's file system, such as "ext4"; "" if the system does not say."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines() if _MOUNTS.exists() else ():
        fields = line.split(" ")
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return ""


def _write(folder: Path, shape: random_moe.Shape) -> None:
    """Write the model for all contenders, and let no page of it stay in memory: mapped ones could not go."""
    synthetic.write(folder / "packed", shape)
    with synthetic.stored(folder / "packed") as arrays:
        random_gguf.write(folder / "model.gguf", shape, arrays)
    drop_cached(file for file in folder.rglob("*") if file.is_file())


def _contenders(folder: Path, memory: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the kinds of contenders and their options, by name."""
    packed = str(folder / "packed")
    ours = {
        name_of(precision): ("pyturbo", {"path": packed, "precision": precision, "memory": memory})
        for precision in PRECISIONS
    }
    mapped = ("pyturbo", {"path": packed, "precision": PRECISIONS[0], "mode": "mapped"})
    return {**ours, MAPPED: mapped, LLAMA: ("llama", {"path": str(folder / "model.gguf")})}
