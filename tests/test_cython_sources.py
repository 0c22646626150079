"""What must not be written in Cython.

`a < b < c` over Python objects gives a reference back twice where `c` raises (seen with Cython 3.3.1). With
an interrupt there NumPy's True had one too few, and the process ended with "free(): invalid pointer".
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from Cython.Compiler.TreeFragment import parse_from_strings
from Cython.Compiler.Visitor import TreeVisitor

import pyturbo

SOURCES = sorted((Path(__file__).parent.parent / "pyturbo").glob("*.pyx"))


class ChainedComparisons(TreeVisitor):  # type: ignore[misc]
    """The lines of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []

    def visit_Node(self, node: object) -> None:  # noqa: N802 (named by the visitor)
        self.visitchildren(node)

    def visit_PrimaryCmpNode(self, node: object) -> None:  # noqa: N802
        if node.cascade is not None:
            self.lines.append(node.pos[1])
        self.visitchildren(node)


def chained(text: str) -> list[int]:
    visitor = ChainedComparisons()
    visitor.visit(parse_from_strings("source", text))
    return visitor.lines


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_comparisons_are_not_chained(path: Path) -> None:
    assert chained(path.read_text(encoding="utf-8")) == []


def test_chained_comparisons_are_seen() -> None:
    assert chained("def f(a):\n    b = 1 < a\n    return a or 0 <= a.low() <= a.high()\n") == [3]


def test_an_interrupt_while_tokens_are_accepted_loses_no_reference() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    sampler, ids = pyturbo.Sampler(), np.arange(10, dtype=np.int32)
    sampler.accept(ids)
    kept = [np.True_] * 10_000  # a process that loses references shows it here, and does not die of it
    before, interrupts = sys.getrefcount(np.True_), 0
    earlier = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in np.linspace(5e-6, 5e-5, 1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                while True:
                    sampler.accept(ids)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.signal(signal.SIGALRM, earlier)
    assert (interrupts, sys.getrefcount(np.True_)) == (1000, before)
    assert len(kept) == 10_000
