"""Checks of the command line that need no model."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyturbo.errors import ArgumentError

#: The id of a small chat model, for messages.
EXAMPLE = "mlx-community/Qwen3-0.6B-4bit"


class UsageError(Exception):
    """The command line is wrong: exit status 2."""


@contextmanager
def usage(*names: str) -> Iterator[None]:
    """Turn an ArgumentError into a UsageError; arguments in `names` are shown as options."""
    try:
        yield
    except ArgumentError as error:
        match = re.match(r"(?:\w+: )?(\w+)(?=: expected)", str(error))
        if match is None or match[1] not in names:
            raise UsageError(str(error)) from error
        raise UsageError(option(match[1]) + str(error)[match.end() :]) from error


def option(name: str) -> str:
    """Return the option for an argument of a function."""
    return "--" + name.replace("_", "-")


def counts(text: str) -> tuple[int, ...]:
    """Parse a list of integers from 1 on."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected integers from 1 on, as in 1,2,4, got {text!r}")
    return numbers


def path(text: str) -> str:
    """Parse a path; `~` is the home directory."""
    return os.path.expanduser(text)  # noqa: PTH111  Path would change the rest of the text


def text_of(flag: str, file: str) -> str:
    """Read the text file that an option names."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag}: {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{flag}: {file}: expected text in UTF-8, got other bytes") from None


def at_least_one(flag: str, value: int | None) -> None:
    """Refuse a count below 1; None means that the option was not given."""
    if value is not None and value < 1:
        raise UsageError(f"{flag}: expected an integer from 1 on, got {value}")


def add_model_name(parser: argparse.ArgumentParser, *, positional: bool) -> None:
    """Add --model; with `positional` the model may also be the first argument."""
    text = "a checkpoint directory, a .gguf file, or the id of a downloaded model"
    if positional:
        parser.add_argument("named", nargs="?", type=_model, metavar="MODEL", help=text)
    parser.add_argument(
        "--model", type=_model, metavar="MODEL", help="the same as the argument" if positional else text
    )


def _model(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a model, got an empty text")
    return path(text)


def one_model(named: str | None, option: str | None) -> str | None:
    """Return the model that was given as an argument or as --model."""
    if named is not None and option is not None:
        raise UsageError(f"expected one model, got {named} and --model {option}")
    return option if named is None else named
