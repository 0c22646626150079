"""The ``pyturbo`` command. Exit status 0 on success, 2 for wrong usage, 1 with one line for anything else."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyturbo
from pyturbo.cli._parser import CommandParser, add_commands
from pyturbo.cli._usage import UsageError
from pyturbo.errors import TurboError

if not hasattr(pyturbo, "devices"):
    from pyturbo._distribution import NAME, advice

    raise ImportError(f"{pyturbo.__path__[0]} does not have the __init__.py of {NAME}. {advice()}")

#: Each is a module here with HELP, add_arguments and run; bench is a folder of such modules.
COMMANDS = (
    "generate",
    "chat",
    "serve",
    "info",
    "probe",
    "convert",
    "pack",
    "verify",
    "pull",
    "bench",
    "devices",
    "kernels",
)


class _Version(argparse.Action):
    """Prints the version, which is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> None:
        print(f"pyturbo {pyturbo.__version__}")
        parser.exit()


def make_parser(argv: Sequence[str]) -> CommandParser:
    """Return the parser of the command line; if `argv` names a command, only that one is imported."""
    first = next((argument for argument in argv if not argument.startswith("-")), None)
    parser = CommandParser(prog="pyturbo", description=(pyturbo.__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    add_commands(parser, "pyturbo.cli", [first] if first in COMMANDS else COMMANDS, metavar="command")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    if sys.stderr is None:  # closed; notes must not go to standard output instead
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  stays open until the process ends
    given = sys.argv[1:] if argv is None else argv
    arguments = argparse.Namespace(debug=False)
    try:
        _run(given, arguments)
    except BrokenPipeError:
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except (UsageError, TurboError, OSError, MemoryError, ImportError) as error:
        if arguments.debug:
            raise
        if isinstance(error, OSError):
            _discard_output()
        with suppress(OSError):
            print(f"pyturbo: {_message(error, arguments)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _run(given: Sequence[str], arguments: argparse.Namespace) -> None:
    """Run the command; on return all output has been written, otherwise an exception says why not."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a model may write any character
    try:
        _, unknown = make_parser(given).parse_known_args(given, arguments)
        if unknown:
            arguments.parser.refuse(unknown)
        arguments.run(arguments)
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard_output() -> None:
    """Drop output that cannot be written, so that Python does not try again when it ends."""
    try:
        _flush()
    except OSError:
        sys.stdout = None


def _message(error: Exception, arguments: argparse.Namespace) -> str:
    if isinstance(error, UsageError):
        return f"{error}; see {arguments.parser.prog} --help"
    if isinstance(error, MemoryError) and not isinstance(error, TurboError):
        return f"there is not enough memory: {error}".removesuffix(": ")
    if isinstance(error, ImportError):
        return f"a package that this command needs cannot be imported: {error}"
    return str(error)
