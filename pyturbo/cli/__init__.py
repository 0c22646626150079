"""The ``pyturbo`` command. Exit status 0 on success, 2 for wrong usage, 1 with one line for anything else."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any

import pyturbo
from pyturbo.cli._usage import UsageError
from pyturbo.errors import TurboError

if not hasattr(pyturbo, "devices"):
    from pyturbo._distribution import NAME, advice

    raise ImportError(f"{pyturbo.__path__[0]} does not have the __init__.py of {NAME}. {advice()}")

#: Each is a module here with HELP, add_arguments and run.
COMMANDS = ("generate", "chat", "info", "convert", "pull", "bench", "devices", "kernels")


class _Version(argparse.Action):
    """Looks the version up when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> None:
        print(f"pyturbo {pyturbo.__version__}")
        parser.exit()


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Where `argv` names a command, only that one is loaded."""
    first = next((argument for argument in argv if not argument.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="pyturbo", description=(pyturbo.__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name in [first] if first in COMMANDS else COMMANDS:
        module = importlib.import_module(f"pyturbo.cli.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        sub.add_argument("--json", action="store_true", help="for scripts")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # text of a model may be more than the terminal can show
    try:
        arguments.run(arguments)
    except UsageError as error:
        if arguments.debug:
            raise
        print(f"pyturbo: {error}; see pyturbo {arguments.command} --help", file=sys.stderr)
        return 2
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
