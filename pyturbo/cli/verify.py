"""``pyturbo verify``: check every byte of a packed checkpoint."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from pyturbo.cli._output import byte_bar, note, print_json, size
from pyturbo.cli._usage import path
from pyturbo.pack import verify

HELP = "check every record, tensor and file of a packed checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=path, help="directory that pack wrote")
    parser.add_argument("--source", type=path, help="checkpoint to compare every value with")


def run(arguments: argparse.Namespace) -> None:
    with byte_bar("verifying") as progress:
        done = verify(arguments.target, arguments.source, progress=progress)
    if arguments.json:
        print_json(asdict(done) | {"path": str(done.path), "ok": done.ok}, indent=2)
    else:
        for finding in done.findings:
            print(finding)
        what = f"{done.records} experts, {done.tensors} tensors, {size(done.nbytes)}"
        found = f"{len(done.findings)} problem{'s' if len(done.findings) > 1 else ''} found"
        note(f"{what}: {'all as they were written' if done.ok else found}")
    if not done.ok:
        raise SystemExit(1)
