"""The parsers of the command and of its subcommands."""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Iterable, Sequence


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of one command, and explains arguments that it does not have."""

    siblings: Iterable[CommandParser] = ()

    @property
    def options(self) -> list[str]:
        return [
            option for action in self._actions for option in action.option_strings if option.startswith("--")
        ]

    def refuse(self, unknown: Sequence[str]) -> None:
        """Exit with status 2 and a message about arguments that are left over."""
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if not options:
            model = "--model" in self.options and not any(action.dest == "named" for action in self._actions)
            hint = "; a model is named with --model" if model else ""
            self.error(f"unexpected argument: {unknown[0]!r}{hint}")
        owners = [f"`{parser.prog}`" for parser in self.siblings if options[0] in parser.options]
        if owners:
            self.error(f"{options[0]} is an option of {' and '.join(owners)}, not of `{self.prog}`")
        names = [option.removeprefix("--") for option in self.options]
        near = difflib.get_close_matches(options[0].lstrip("-"), names, n=1, cutoff=0.7)
        meant = f"; did you mean --{near[0]}?" if near else ""
        self.error(f"{options[0]}: `{self.prog}` has no such option{meant}")


def add_commands(parser: CommandParser, package: str, names: Sequence[str], metavar: str | None) -> None:
    """Add the commands that are modules of `package`: each has HELP, add_arguments and run.

    A command with COMMANDS instead of the two functions is a package whose modules are its subcommands.
    """
    commands = parser.add_subparsers(dest="command", required=True, metavar=metavar)
    for name in names:
        module = importlib.import_module(f"{package}.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        if hasattr(module, "COMMANDS"):
            add_commands(sub, module.__name__, module.COMMANDS, metavar=None)
            continue
        sub.add_argument("--json", action="store_true", help="print JSON for scripts")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run, parser=sub)
        sub.siblings = commands.choices.values()
