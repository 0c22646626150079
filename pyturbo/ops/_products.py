"""Helpers of products with weights of any format."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._ids import integers, sample
from pyturbo.ops._run import Array, Target, operand, traits_of
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import Linear

#: The smallest number of tokens that the tiled product is used for. It reads the weights once per 32 tokens,
#: where the matrix-vector kernel reads them for each token, but always multiplies a whole tile.
TILED_TOKENS = 8

#: Rows of a launch for one vector that are too few for a GPU.
FEW_ROWS = 512

_LANES, _TEAM_ROWS = 128, 4  # of a threadgroup, and of a team
_USUAL_TEAMS, _FEW_ROW_TEAMS, _MOST_TEAMS = 2, 2, 16
_LONG_ROW_TEAMS = (1, 2, 4)
_SPAN = 16  # lanes with more values need more registers: only three quarters as many threadgroups run at once


class Kernels(NamedTuple):
    """The kernels of a product, by the number of tokens that each is for."""

    one: str
    few: str
    many: str


def kernel_for(kernels: Kernels, target: Target, tokens: int | Linear) -> str:
    """Return the best kernel for a number of tokens. A symbolic one counts as the most that it can be."""
    if isinstance(tokens, Linear):
        most, many_from = tokens.at(cast(Recorder, target).limits), 1
    else:
        most, many_from = tokens, TILED_TOKENS
    if 1 < most <= traits_of(target).few_tokens:
        return kernels.few
    return kernels.many if most >= many_from else kernels.one


def row_teams(target: Target, rows: int, inner: int, span: int) -> dict[str, int]:
    """Return the function constant of the kernels for one vector: how many teams the lanes form.

    `rows` are those of all matrices of a launch, with `inner` values each, of which a lane multiplies `span`
    at once. Where rows are long, there are as many teams as the device needs the least time with; where they
    are short, so many that all lanes have something to do, but no more than two if rows are few, too.
    """
    spans, few = -(-inner // span), rows <= FEW_ROWS
    teams = 1 if few else long_row_teams(traits_of(target).product_groups, rows, span)
    while teams < (_FEW_ROW_TEAMS if few else _MOST_TEAMS) and spans <= _LANES // (2 * teams):
        teams *= 2
    return {"row_teams": teams}


def long_row_teams(held: int, rows: int, span: int) -> int:
    """Return how many teams take the least time on a device that runs `held` threadgroups at once.

    Threadgroups run in waves. One takes as long to start and to add up what its lanes have as for a team.
    """
    if held == 0:
        return _USUAL_TEAMS
    if span > _SPAN:
        held = held * 3 // 4
    return min(_LONG_ROW_TEAMS, key=lambda teams: -(-rows // (_TEAM_ROWS * teams * held)) * (teams + 1))


def activations(op: str, x: ArrayLike, in_dim: int) -> Array:
    """Check x [tokens, in], which needs at least one token."""
    rows = operand(op, "x", x, np.float32, (None, in_dim))
    if rows.shape[0] == 0:
        raise ArgumentError(f"{op}: x: expected at least one row, got shape {list(rows.shape)}")
    return rows


def bucket_bounds(op: str, offsets: ArrayLike, experts: int, rows: int) -> Array:
    """Check offsets [experts + 1], which increase from 0 to `rows`. Kernels check those of a program."""
    bounds = integers(op, "offsets", offsets, (experts + 1,))
    known = not isinstance(bounds, Tensor)
    if known and (bounds[0] != 0 or bounds[-1] != rows or np.diff(bounds).min() < 0):
        raise ArgumentError(f"{op}: offsets: expected an increase from 0 to {rows}, got {sample(bounds)}")
    return bounds
