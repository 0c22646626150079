"""Choosing a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._arguments import real, token_ids
from pyturbo._buffer import Buffer
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import integer, values
from pyturbo.ops._run import Array, DeviceLike, Target, empty, launch, operand, resolve, result, traits_of
from pyturbo.recording import Extent

#: Values that `top_logits` returns at most.
MAX_TOP_LOGITS = 64

#: Tokens that a rule of `choose_token` may forbid.
MAX_FORBIDDEN = 8

#: The longest row that `top_logits` takes.
MAX_LOGITS = 1 << 20

_PART = 2048  # values of a row that one threadgroup looks at, if there are enough threadgroups
_MOST_PARTS = 256

#: Rows that do not fill a GPU with a threadgroup each.
_FEW_ROWS = 32

#: Words of a rule of `choose_token`.
RULE_WORDS = 5 + MAX_FORBIDDEN

_FLOAT = np.finfo(np.float32)
_LARGEST = float(np.finfo(np.float64).max)


def argmax(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Return the index of the largest value of each row of x [rows, n] -> int32 [rows].

    Among equals it is the lowest index, in a row with NaN that of the first NaN.
    """
    x = values("argmax", "x", x, axes=2)
    rows, n = x.shape
    device = resolve(device)
    y = empty(device, (rows,), np.int32)
    if traits_of(device).top_logits and _shares_rows(rows, n):
        _launch_top(device, x, 1, empty(device, (rows,)), y, empty(device, (rows,)))
    else:
        launch(device, "argmax", x, y, rows, n)
    return result(y)


def top_logits(x: ArrayLike, k: int, *, device: DeviceLike = None) -> tuple[Array, Array, Array]:
    """Return the k largest values of each row of x [rows, n], and the sum of the row's exponentials.

    Returns values [rows, k], the larger first and equal ones by index; their indices, int32 [rows, k]; and
    totals [rows], the sum of ``exp(x - values[:, :1])`` over all of the row. NaN ranks before all other
    values; the total of a row with NaN or +inf is NaN, of one with -inf only 0.
    """
    x = values("top_logits", "x", x, axes=2)
    rows, n = x.shape
    if n > MAX_LOGITS:
        raise ArgumentError(f"top_logits: x: expected rows of at most {MAX_LOGITS} values, got {n}")
    k = integer("top_logits", "k", k, least=1, most=min(n, MAX_TOP_LOGITS))
    device = resolve(device)
    best, tokens = empty(device, (rows, k)), empty(device, (rows, k), np.int32)
    totals = empty(device, (rows,))
    _launch_top(device, x, k, best, tokens, totals)
    return result(best), result(tokens), result(totals)


def choice_rule(
    top_k: int,
    top_p: float = 1.0,
    min_p: float = 0.0,
    temperature: float = 1.0,
    draw: float = 1.0,
    forbidden: Sequence[int] = (),
) -> NDArray[np.uint32]:
    """Return a rule for `choose_token`, uint32 [RULE_WORDS].

    Options have the meaning and the order that `pyturbo.Sampler` gives them. `draw` is the random number,
    above 0 and at most 1.
    """
    rule = np.full(RULE_WORDS, 0xFFFFFFFF, np.uint32)
    rule[0] = integer("choice_rule", "top_k", top_k, least=1, most=MAX_TOP_LOGITS)
    scale = 1 / _number("temperature", temperature, _LARGEST)
    rule[1:5].view(np.float32)[:] = (
        max(_number("top_p", top_p, 1.0), _FLOAT.tiny),
        _number("min_p", min_p, 1.0, zero=True),
        min(max(scale, _FLOAT.tiny), _FLOAT.max),
        _number("draw", draw, 1.0),
    )
    if not isinstance(forbidden, Sequence):
        raise ArgumentError(f"choice_rule: forbidden: expected a list of tokens, got {shown(forbidden)}")
    tokens = token_ids("choice_rule: forbidden", forbidden)
    if len(tokens) > MAX_FORBIDDEN:
        raise ArgumentError(
            f"choice_rule: forbidden: expected at most {MAX_FORBIDDEN} tokens, got {len(tokens)}"
        )
    rule[5 : 5 + len(tokens)] = tokens
    return rule


def with_draw(rule: NDArray[np.uint32], draw: float) -> NDArray[np.uint32]:
    """Return a copy of a rule with another random number."""
    copy: NDArray[np.uint32] = rule.copy()
    copy.view(np.float32)[4] = draw
    return copy


def choose_token(
    logits: ArrayLike, tokens: ArrayLike, rule: ArrayLike, *, device: DeviceLike = None
) -> tuple[Array, Array]:
    """Draw one of tokens [k] by their logits [k], the larger first -> int32 [1], twice.

    `choice_rule` makes the rule. A device that goes on with a token that the host has not seen needs one of
    the results; the other is for the host.
    """
    logits = values("choose_token", "logits", logits, axes=1)
    (k,) = logits.shape
    integer("choose_token", "logits: values", k, least=1, most=MAX_TOP_LOGITS)
    tokens = operand("choose_token", "tokens", tokens, np.int32, (k,))
    rule = operand("choose_token", "rule", rule, np.uint32, (RULE_WORDS,))
    device = resolve(device)
    drawn, seen = empty(device, (1,), np.int32), empty(device, (1,), np.int32)
    launch(device, "choose_token", logits, tokens, rule, drawn, seen, k)
    return result(drawn), result(seen)


def _number(name: str, value: float, most: float, *, zero: bool = False) -> float:
    """Return a number from 0 to `most`; whether it may be 0 is said by `zero`."""
    number = real(f"choice_rule: {name}", value)
    if not 0 <= number <= most or (number == 0 and not zero):
        bounds = f"from 0 to {most:g}" if zero else f"above 0 and at most {most:g}"
        raise ArgumentError(f"choice_rule: {name}: expected a number {bounds}, got {shown(value)}")
    return number


def _shares_rows(rows: Extent, n: Extent) -> bool:
    """Whether many threadgroups look for the largest value of a row, instead of one."""
    return isinstance(rows, int) and isinstance(n, int) and rows <= _FEW_ROWS and _PART < n <= MAX_LOGITS


def _launch_top(device: Target, x: Array, k: int, best: Buffer, tokens: Buffer, totals: Buffer) -> None:
    """Launch both halves of `top_logits`, for results of k values a row."""
    rows, n = x.shape
    parts = min(-(-n // _PART), _MOST_PARTS)
    found = (
        empty(device, (rows, parts, k)),
        empty(device, (rows, parts, k), np.int32),
        empty(device, (rows, parts)),
        empty(device, (rows, parts)),
    )
    launch(device, "top_logits_partials", x, *found, rows, parts, n, k)
    launch(device, "top_logits_merge", *found, best, tokens, totals, rows, parts, k)
