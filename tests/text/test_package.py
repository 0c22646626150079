"""Errors of the `tokenizers` package."""

from __future__ import annotations

import sys

import pytest

from pyturbo.errors import FormatError
from pyturbo.text.package import package_errors


def test_errors_and_panics_are_format_errors() -> None:
    for error in (ValueError("odd"), BaseException("odd")):
        with pytest.raises(FormatError, match="^the file: 'odd'$"), package_errors("the file"):
            raise error


def test_what_ends_a_program_stays_what_it_is() -> None:
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error), package_errors("the file"):
            raise error


def test_an_interrupt_before_the_first_statement_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    abandoned = package_errors("the file")
    abandoned.__enter__()
    del abandoned
    assert unraisable == []
