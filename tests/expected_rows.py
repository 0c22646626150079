"""For tests of replays that are prepared while others run: a program whose replays differ by a row.

And conversations that are compared with those of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import pyturbo
from pyturbo._program import Cursor
from pyturbo.symbols import Place, symbol

ROWS, WIDTH = 6, 8


def row_adder(device: pyturbo.Device) -> pyturbo.Program:
    """Adds one to the first values of a row of a block; then adds the row to a sum after the rows."""
    one = device.empty(WIDTH)
    one.write(np.ones(WIDTH, np.float32))
    row = Place("block", 4 * WIDTH * symbol("row"), 4 * WIDTH)
    total = Place("block", 4 * WIDTH * ROWS, 4 * WIDTH)
    program = pyturbo.Program(device, symbols=("row", "count"), blocks=("block",))
    program.add(device.kernel("add"), row, one, row, symbol("count"))
    program.add(device.kernel("add"), row, total, total, WIDTH)
    return program


def block_of(device: pyturbo.Device) -> pyturbo.Buffer:
    return device.empty((ROWS + 1, WIDTH))


def cursor_at(position: int) -> Cursor:
    cursor = Cursor()
    cursor.position = position
    return cursor


def check_wrong_guesses(device: pyturbo.Device) -> None:
    program, blocks, cursor = row_adder(device), [block_of(device), block_of(device)], cursor_at(1)
    program.run(blocks[:1], advance=1, ahead=True, row=cursor, count=8)  # expects row 2
    program.run(blocks[:1], row=0, count=8)  # back
    program.run(blocks[:1], advance=1, ahead=True, row=cursor, count=8)  # expects row 3
    program.run(blocks[1:], row=cursor, count=8)  # another block
    program.run(blocks[:1], advance=1, ahead=True, row=cursor, count=8)  # expects row 4
    program.run(blocks[:1], row=cursor, count=2)  # fewer values
    np.testing.assert_array_equal(blocks[0].read()[:, 0], [1, 1, 1, 1, 1, 0, 5])
    np.testing.assert_array_equal(blocks[0].read()[4], [1] * 2 + [0] * 6)
    np.testing.assert_array_equal(blocks[1].read()[:, 0], [0, 0, 0, 1, 0, 0, 1])


def logits_after(oracle: pyturbo.Model, tokens: Sequence[int]) -> NDArray[np.float32]:
    with oracle.session(128) as session:
        return session.prefill(tokens).copy()


def check(oracle: pyturbo.Model, *sessions: pyturbo.Session) -> None:
    """Compare the logits of sessions with what a model on the CPU finds for their tokens."""
    for session in sessions:
        want = logits_after(oracle, session.tokens.tolist())
        np.testing.assert_allclose(session.logits, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


def check_forks_rewinds_and_turns(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    with model.session(64) as session:
        session.prefill([1, 2, 3])
        session.step(9)
        fork = session.fork()
        for token in (4, 5):
            session.step(token)
            fork.step(token + 10)
        check(oracle, session, fork)
        session.rewind(4)
        session.step(30)
        check(oracle, session)
        session.grow(128)
        session.step(31)
        fork.rewind(3)
        fork.step(32)
        fork.step(33)
        check(oracle, session, fork)
