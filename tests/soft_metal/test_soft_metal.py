"""The Objective-C++ cases of tests/soft_metal/cases, collected one by one.

Each rule of soft Metal is broken once and kept once. What Apple's own validation says in the same place cannot be
seen here.
"""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal


@pytest.mark.parametrize("case", soft_metal.cases())
def test_soft_metal(case: str) -> None:
    soft_metal.run(case)
