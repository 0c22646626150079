"""``pyturbo bench matvec``: what is multiplied, and how it is counted."""

from __future__ import annotations

import pytest

from pyturbo import Device
from pyturbo.bench import memory
from pyturbo.bench.matrix_formats import FORMATS, MatrixFormat
from pyturbo.ops import FP_FORMATS, GGUF_TYPES

NBYTES = 1 << 19
SHAPE = (64, 512)


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SHAPES", (SHAPE,))
    monkeypatch.setattr(memory, "EXPERT_SHAPE", SHAPE)
    monkeypatch.setattr(memory, "EXPERTS", 8)


def test_every_format_is_measured() -> None:
    speeds = memory.matvec(1, NBYTES, [1], formats=True)
    names = ["4 bits in groups of 64", *FP_FORMATS, *GGUF_TYPES]
    assert [speed.what for speed in speeds] == 2 * names
    assert all(speed.gigabytes > 0 and speed.share is not None for speed in speeds)


def test_every_shape_is_measured() -> None:
    speeds = memory.matvec(1, NBYTES, [1])
    assert [speed.what for speed in speeds] == 2 * ["64 x 512", "8 experts of 64 x 512"]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_products_read_the_bytes_that_are_counted(form: MatrixFormat) -> None:
    """Every matrix of the memory once; what is left is too small for one more."""
    with Device("cpu", threads=1) as device:
        program, used = memory._products(device, memory._memory(device, NBYTES), form, *SHAPE)
        matrix = sum(plane.nbytes for plane in form.planes(*SHAPE))
        assert used == len(program) * matrix
        assert NBYTES - matrix < used <= NBYTES
        program.run()
