"""The Objective-C++ cases of tests/soft_metal/cases, collected one by one.

Each rule of soft Metal is broken once and kept once. What Apple's own validation says in the same place
cannot be seen here.
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


def test_control_from_python() -> None:
    soft_metal.run("soft_unbound_argument_under_a_constant")  # ends with a look-alike that works
    assert soft_metal.violations() == soft_metal.warnings() == []
    assert soft_metal.counters()["dispatches"] == 2
    assert soft_metal.live_objects() == {}
    soft_metal.reset()
    assert not any(soft_metal.counters().values())
    with pytest.raises(TypeError, match="no option colour"):
        soft_metal.set_options(colour=1)
    with pytest.raises(KeyError):
        soft_metal.inject("rain")
