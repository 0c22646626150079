"""`pyturbo bench encode`. That it is fast is not tested: other load on the machine would decide."""

from __future__ import annotations

import importlib.util
import json

import pytest

import pyturbo
from pyturbo.bench.encode import encode
from pyturbo.cli import main

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

pytestmark = pytest.mark.slow


def test_a_step_for_a_metal_that_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    soft_metal.set_options(does_nothing=True)
    assert main(["bench", "encode", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "Soft Metal"
    assert found["launches"] > found["waits"] > 40
    assert 0 < found["least_us"] <= found["us"] < found["ahead_us"]  # the step before has encoded it
    assert found["command_buffers"] == 2  # of a step with real sizes, of which nothing runs
    assert 20 < found["longest_ms"] <= 100
    counters = soft_metal.counters()
    assert counters["dispatches"] == counters["command_buffers"] == 0


def test_another_device() -> None:
    with pyturbo.Device("cpu", threads=1) as device:
        encoded = encode(device)
    assert encoded.device == "cpu"
    assert encoded.command_buffers is encoded.longest_ms is None
