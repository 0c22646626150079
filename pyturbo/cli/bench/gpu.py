"""``pyturbo bench gpu``: kernels, replays and a random model on a GPU."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from pyturbo.bench.gpu import model
from pyturbo.bench.gpu.file import ReportFile
from pyturbo.bench.gpu.model import Plan
from pyturbo.bench.gpu.report import PARTS, Report, measure
from pyturbo.cli import _output
from pyturbo.cli._model import add_device_arguments, open_device
from pyturbo.cli._usage import at_least_one, path, usage
from pyturbo.cli.bench._gpu_tables import facts_text, tables
from pyturbo.layers.kv_cache import kv_format

HELP = "kernels with their share of the bandwidth, replays, and a model of 35B with random weights, on a GPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_device_arguments(parser)
    parser.add_argument(
        "--only",
        type=_parts,
        default=PARTS,
        metavar="PART,...",
        help=f"measure only some of {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to test a device")
    parser.add_argument("--no-torch", action="store_true", help="do not compare with torch")
    parser.add_argument("--layers", type=int, help="layers of the model (default: 40)")
    parser.add_argument("--experts", type=int, help="experts of a layer of the model (default: 256)")
    parser.add_argument("--kv", default="f16", help="format of keys and values (default: %(default)s)")
    parser.add_argument(
        "--report", type=path, metavar="FILE", help="write all figures, with device and versions, as text"
    )


def _parts(text: str) -> tuple[str, ...]:
    """Parse a list of parts."""
    names = tuple(text.split(","))
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, got {name!r}")
    return names


def run(arguments: argparse.Namespace) -> None:
    at_least_one("--layers", arguments.layers)
    at_least_one("--experts", arguments.experts)
    with usage("kv", "report"):
        plan = _plan(arguments)
        file = None if arguments.report is None else ReportFile(Path(arguments.report))
    with open_device(arguments) as device, _output.telling() as tell:
        for part, report in measure(
            device,
            arguments.only,
            plan,
            quick=arguments.quick,
            torch=not arguments.no_torch,
            tell=tell,
        ):
            if not arguments.json:
                for table in tables(report, part):
                    _output.print_table(table)
                    print()
            if file is not None:
                file.write(_text(report))
    if arguments.json:
        _output.print_json(report.to_json(), indent=2)
    else:
        print(facts_text(report))


def _plan(arguments: argparse.Namespace) -> Plan:
    plan = model.QUICK if arguments.quick else Plan()
    shape = plan.shape
    layers = shape.layers if arguments.layers is None else arguments.layers
    experts = shape.experts if arguments.experts is None else arguments.experts
    shape = replace(shape, layers=layers, experts=experts, chosen=min(shape.chosen, experts))
    return replace(plan, shape=shape, kv=kv_format(arguments.kv).name)


def _text(report: Report) -> str:
    """Return everything as tables, and as one line of JSON at the end."""
    shown = [facts_text(report)]
    for part in report.seconds:
        shown += [_output.table_text(table) for table in tables(report, part)]
    return "\n".join([*shown, json.dumps(report.to_json()), ""])
