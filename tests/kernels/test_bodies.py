"""Every CPU body against its shader, at every level of this machine, in every instance.

A body without a launch here fails: `launches` finds sizes and data by the names of the kernel's arguments.
The bound is a coarse one, the same for all kernels: these tests are about arguments, instances and geometry.
The tests of each kernel have the tight bounds and more shapes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import pyturbo
from kernels.contract_launch import Launch, launches
from kernels.levels import LEVELS, device_at
from pyturbo import _native_tests
from tolerances import BODIES, BODY_CODES, STEPS

FUNCTIONS = sorted({name for level in LEVELS for name in _native_tests.bodies(level)})

pytestmark = pytest.mark.skipif(not LEVELS, reason="this machine has no level")


@cache
def reference_device() -> pyturbo.Device:
    return pyturbo.Device("cpu:reference", check=False)


@cache
def results_of_shaders(function: str) -> list[tuple[Launch, dict[str, np.ndarray]]]:
    return [(launch, launch.run(reference_device())) for launch in launches(function)]


def merged(launch: Launch, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Blocks of attention made one, since a body may cut the keys in other places than the shader."""
    if not {"o", "m", "l"} <= outputs.keys():
        return outputs
    rows = launch.values["tokens"] * launch.values["heads"] * launch.values.get("batch", 1)
    blocks = launch.values["blocks"]
    o, m, l = (outputs[name] for name in "oml")  # noqa: E741
    m, l = (part[: rows * blocks].reshape(rows, blocks).astype(np.float64) for part in (m, l))  # noqa: E741
    o = o[: rows * blocks * (o.size // (rows * blocks))].reshape(rows, blocks, -1)
    weights = np.exp(np.where(l == 0, -np.inf, m) - m.max(1, keepdims=True, where=l != 0, initial=-np.inf))
    total = (weights * l).sum(1)
    return {"y": (weights[..., None] * o).sum(1) / total[:, None], "total": np.log(total) + m.max(1)}


def assert_alike(function: str, name: str, got: np.ndarray, want: np.ndarray) -> None:
    if function == "turbo_encode" and name == "packed":
        assert (got != want).mean() <= BODY_CODES
    elif got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        bound = BODIES + STEPS.get(got.dtype.name, 0)
        got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        finite = np.isfinite(want)
        largest = np.abs(want[finite]).max(initial=0)
        np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=bound * largest)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_body_computes_what_its_shader_does(function: str, level: str) -> None:
    device = device_at(level)
    for launch, outputs in results_of_shaders(function):
        got, want = merged(launch, launch.run(device)), merged(launch, outputs)
        assert got.keys() == want.keys()
        for name in want:
            assert_alike(function, name, got[name], want[name])


@pytest.mark.parametrize("level", LEVELS)
def test_every_instance_runs_by_its_body(level: str) -> None:
    """Without this, an instance that no body serves would run as its shader, and pass above."""
    kernels = pyturbo.kernels().values()
    expected = {kernel["name"] for kernel in kernels if kernel["function"] in FUNCTIONS}
    assert set(_native_tests.instances(level)) == expected


def test_levels_have_the_same_bodies() -> None:
    for level in LEVELS:
        assert sorted(_native_tests.bodies(level)) == FUNCTIONS
