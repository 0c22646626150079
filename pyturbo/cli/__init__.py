"""The ``pyturbo`` command. Exit status 0 on success, 2 for wrong usage, 1 with one line for anything else."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence

import pyturbo
from pyturbo.errors import TurboError

#: Each is a module here with HELP, add_arguments and run.
COMMANDS = ("generate", "chat", "info", "convert", "pull", "bench", "devices", "kernels")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyturbo", description=pyturbo.__doc__)
    parser.add_argument("--version", action="version", version=f"pyturbo {pyturbo.__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name in COMMANDS:
        module = importlib.import_module(f"pyturbo.cli.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        sub.add_argument("--json", action="store_true", help="for scripts")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # text of a model may be more than the terminal can show
    try:
        arguments.run(arguments)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (TurboError, OSError) as error:
        if arguments.debug:
            raise
        print(f"pyturbo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
