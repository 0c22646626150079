"""Wrong arguments as careless callers write them, and what the exceptions must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pyturbo.errors import ArgumentError


class Thing:
    """An object of no use to any function."""


def complaints(
    function: Callable[..., Any], arguments: dict[str, Any], name: str, wrong: Iterable[Any], *aliases: str
) -> list[str]:
    """Return what is wrong with how `function` treats wrong values of the argument `name`.

    Each must be an ArgumentError, or the TypeError of a compiled signature, whose text names the argument, or
    one of `aliases`, and what was expected.
    """
    found = []
    for value in wrong:
        try:
            function(**{**arguments, name: value})
        except ArgumentError as error:
            named = any(re.search(rf"\b{re.escape(each)}\b", str(error)) for each in (name, *aliases))
            if named and "expected" in str(error):
                continue
            got = str(error)
        except TypeError as error:
            if f"Argument '{name}' has incorrect type (expected " in str(error):
                continue
            got = f"TypeError: {error}"
        except Exception as error:  # whatever it is, it is a finding
            got = f"{type(error).__name__}: {error}"
        else:
            got = "accepted"
        found.append(f"{name}={value!r:.60}: {got}")
    return found


def unknown_keyword(function: Callable[..., Any], arguments: dict[str, Any]) -> list[str]:
    """Return what is wrong with how `function` treats a keyword that it does not have."""
    try:
        function(**arguments, frobnicate=1)
    except (TypeError, ArgumentError) as error:
        return [] if "frobnicate" in str(error) else [f"frobnicate=1: {error}"]
    return ["frobnicate=1: accepted"]
