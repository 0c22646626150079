"""``pyturbo probe``: measure reads of experts from a disk, and how fast a packed model runs from it."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyturbo._arguments import byte_count
from pyturbo.bench.model_probe import probe_model
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.cli._forecast import show_forecast, speed
from pyturbo.cli._model import add_device_arguments, open_device
from pyturbo.cli._output import Waiting, note, print_json, print_table, size, table
from pyturbo.cli._signals import ended_by_signal
from pyturbo.cli._usage import UsageError, path, usage
from pyturbo.describe import survey
from pyturbo.forecast import forecast
from pyturbo.model import load
from pyturbo.streaming.disk import DiskSpeed
from pyturbo.streaming.disk_probe import probe_reads, temporary_records
from pyturbo.streaming.policy import Policy
from pyturbo.streaming.speed import ModelSpeed

HELP = "measure how fast experts are read from a disk, and how fast a packed model runs from it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        default=".",
        type=path,
        metavar="MODEL or FOLDER",
        help="a packed model, or any folder of the disk (default: the current folder)",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time for reads (default: %(default)s)")
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="memory for the process, such as 12GB (default: most of the free memory)",
    )
    add_device_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.seconds <= 600:
        raise UsageError(f"--seconds: expected a number above 0 and up to 600, got {arguments.seconds:g}")
    with usage("memory"):
        memory = None if arguments.memory is None else byte_count("memory", arguments.memory)
    folder = Path(arguments.target)
    if folder.is_dir() and not (folder / "config.json").exists():
        disk = _probe_folder(folder, arguments.seconds)
        _show(arguments, folder, disk, None)
        return
    with open_checkpoint(arguments.target) as checkpoint:
        folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
        if not isinstance(checkpoint, PackedCheckpoint):
            disk = _probe_folder(folder, arguments.seconds)
            _show(arguments, folder, disk, None)
            return
        device = open_device(arguments)
        load(
            folder, device, memory=memory, policy=Policy(mode="stream")
        ).close()  # too little memory ends here
        with _Steps("reading experts") as steps:
            files, choices = checkpoint.record_files(), survey(checkpoint).choices
            disk = probe_reads(files, choices, arguments.seconds, steps.advance)
        disk.save(folder)
        with _Steps("decoding") as steps:
            policy = Policy.reading(disk.best)
            model, fingerprint = probe_model(folder, device, memory, policy, progress=steps.advance)
        model.save(folder, fingerprint)
        _show(arguments, folder, disk, model)
        if not arguments.json:
            print()
            show_forecast(forecast(checkpoint))


def _probe_folder(folder: Path, seconds: float) -> DiskSpeed:
    with (
        _Steps("reading") as steps,
        ended_by_signal(steps.advance) as progress,
        temporary_records(folder, lambda done, total: progress(done, 2 * total)) as file,
    ):
        disk = probe_reads(
            [file], seconds=seconds, progress=lambda done, total: progress(total + done, 2 * total)
        )
    disk.save(folder)
    return disk


class _Steps:
    """A progress bar of steps."""

    def __init__(self, what: str) -> None:
        self._what, self._done = what, 0
        self._bar: Any = nullcontext()

    def __enter__(self) -> _Steps:
        self._bar = Waiting(self._what, 1000, lambda: self._done)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def advance(self, done: int, total: int) -> None:
        self._done = 1000 * done // total


def _show(arguments: argparse.Namespace, folder: Path, disk: DiskSpeed, model: ModelSpeed | None) -> None:
    if arguments.json:
        facts = {"path": str(folder), "disk": asdict(disk) | {"best": asdict(disk.best)}}
        print_json(facts | {"model": None if model is None else asdict(model)}, indent=2)
        return
    rows = table(
        "reads of experts", "threads", "in parts of", "speed", right=("threads", "in parts of", "speed")
    )
    for one in disk.speeds:
        what = "direct" if one.direct else "through the page cache"
        part = size(one.split) if one.split else "whole"
        used = "  used" if one == disk.best else ""
        rows.add_row(what, str(one.threads), part, f"{size(one.bandwidth)}/s{used}")
    print_table(rows)
    note(f"{disk.at_once} records of {size(disk.record)} at once")
    if model is None:
        return
    print()
    columns = ("memory for experts", "tokens/s", "read per token", "waiting", "overlap")
    rows = table(*columns, right=columns)
    for measured in model.measured:
        rows.add_row(
            size(measured.slot_bytes),
            speed(1 / measured.seconds),
            size(measured.read_bytes),
            f"{measured.wait_seconds / measured.seconds:.0%}",
            f"{measured.overlap:.0%}",
        )
    print_table(rows)
