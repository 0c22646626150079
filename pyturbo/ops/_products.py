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

_LANES, _TEAMS, _MOST_TEAMS = 128, 2, 16  # of a threadgroup


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


def row_teams(rows: int, inner: int, span: int) -> dict[str, int]:
    """Return the function constant of the kernels for one vector: how many teams the lanes form.

    `rows` are those of all matrices of a launch, with `inner` values each, of which a lane multiplies `span`
    at once. Where rows are few and long, all lanes share them; where they are many and short, few lanes do.
    """
    spans, teams = -(-inner // span), _TEAMS
    if rows <= FEW_ROWS:
        return {"row_teams": 1 if spans > _LANES // _TEAMS else _TEAMS}
    while teams < _MOST_TEAMS and spans <= _LANES // (2 * teams):
        teams *= 2
    return {"row_teams": teams}


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
