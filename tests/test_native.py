"""The C++ cases of tests/native, collected one by one."""

from __future__ import annotations

import pytest

from pyturbo import _native_tests


@pytest.mark.parametrize("case", _native_tests.cases())
def test_native(case: str) -> None:
    _native_tests.run(case)
