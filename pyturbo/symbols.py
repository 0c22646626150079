"""Integers and places in memory that a program leaves open when recorded, and each replay supplies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from pyturbo._buffer import Buffer
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError


@dataclass(frozen=True)
class Linear:
    """``constant + sum of factor * symbol``. Sums and multiples of linear expressions are linear again.

    Examples:
        >>> from pyturbo.symbols import symbol
        >>> 4 * symbol("tokens") + 16
        Linear(4 * tokens + 16)
        >>> (4 * symbol("tokens") + 16).at({"tokens": 3})
        28
    """

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()  # sorted by name; no factor is zero

    @staticmethod
    def of(value: int | Linear) -> Linear:
        return value if isinstance(value, Linear) else Linear(value)

    def at(self, symbols: Mapping[str, int]) -> int:
        """Return the value for these symbols."""
        return self.constant + sum(factor * symbols[name] for name, factor in self.terms)

    def __add__(self, other: int | Linear) -> Linear:
        other = Linear.of(other)
        factors = dict(self.terms)
        for name, factor in other.terms:
            factors[name] = factors.get(name, 0) + factor
        terms = tuple(sorted((name, factor) for name, factor in factors.items() if factor))
        return Linear(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> Linear:
        terms = tuple((name, of_name * factor) for name, of_name in self.terms) if factor else ()
        return Linear(self.constant * factor, terms)

    def __floordiv__(self, divisor: int) -> Linear:
        """Divide; the quotient must be exact."""
        if self.constant % divisor or any(factor % divisor for _, factor in self.terms):
            raise ArgumentError(f"expected a multiple of {divisor}, got {self}")
        terms = tuple((name, factor // divisor) for name, factor in self.terms)
        return Linear(self.constant // divisor, terms)

    def __sub__(self, other: int | Linear) -> Linear:
        return self + Linear.of(other) * -1

    __radd__ = __add__
    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Linear({self})"

    def __str__(self) -> str:
        parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in self.terms]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])


def symbol(name: str) -> Linear:
    """Return the integer that is called `name` in a program."""
    if not isinstance(name, str):
        raise ArgumentError(f"symbol: name: expected text, got {shown(name)}")
    return Linear(0, ((name, 1),))


@dataclass(frozen=True)
class Place:
    """`nbytes` of a block of a program, or of a Buffer, from byte `offset` on, or all up to byte `end`."""

    block: str | Buffer
    offset: int | Linear
    nbytes: int
    dtype: Any = "float32"
    end: int | None = None


class Launch(NamedTuple):
    """One line of a program's listing."""

    label: str
    kernel: str
    arguments: str  # "x=float32[tokens, 64], dim=64"
    waits: bool  # whether it waits for launches before it
    repeats: bool  # whether it runs in every pass of a host loop


class Loop(NamedTuple):
    """Where a host loop lies in a program, as indices of launches; None: not recorded yet."""

    ask: int  # the first launch that may run while the host works
    begin: int | None  # the first launch of a pass
    end: int | None  # the first launch after the passes


class Part(NamedTuple):
    """Launches of a replay that a GPU gets at once, as indices of them."""

    begin: int
    end: int
    seconds: float  # that they are estimated to take, on the slowest GPU; 0: unknown


class LaunchRun(NamedTuple):
    """One execution of a launch."""

    launch: int  # its index in the program
    begin: float
    end: float


class HostCall(NamedTuple):
    """Work of a host loop during which no launch ran."""

    loop: int  # its index in the program
    number: int  # of the pass that it prepared, unless none was left; 0: it started what the loop brings
    begin: float
    end: float


class Timeline(NamedTuple):
    """When the launches of one replay ran, in seconds of a clock that never goes back."""

    begin: float
    end: float
    runs: list[LaunchRun]
    calls: list[HostCall]


def described(argument: Any) -> str:
    """Return an argument of a launch as people read it: memory as its type and shape, a number as itself."""
    if isinstance(argument, Place):
        return f"{_type_name(argument.dtype)}[{argument.nbytes} bytes]"
    shape = getattr(argument, "shape", None)
    if shape is None:
        return str(argument)
    return f"{_type_name(argument.dtype)}[{', '.join(map(str, shape))}]"


@cache
def _type_name(dtype: Any) -> str:
    return str(dtype)
