"""Rotary frequencies against those of transformers (tests/oracle/make_rope_goldens.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyturbo.checkpoint.entries import Entries
from pyturbo.errors import FormatError
from pyturbo.layers.rope import Rope

GOLDEN = json.loads((Path(__file__).parent.parent / "goldens" / "rope.json").read_text())


def read(parameters: dict, **others: object) -> Rope:
    entries = {"max_position_embeddings": GOLDEN["context"], "rope_parameters": parameters} | others
    return Rope.read(Entries("config.json", entries), GOLDEN["head_dim"])


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_matches_transformers(name: str) -> None:
    case = GOLDEN["cases"][name]
    rope = read(case["rope_parameters"])
    np.testing.assert_allclose(rope.inv_freq, case["inv_freq"], rtol=1e-6)
    np.testing.assert_allclose(rope.scale, case["scale"], rtol=1e-6)


def test_older_spellings() -> None:
    new = read({"rope_type": "linear", "rope_theta": 1e6, "factor": 2.0, "partial_rotary_factor": 0.5})
    old = read(
        None,
        rope_theta=1e6,
        partial_rotary_factor=0.5,
        rope_scaling={"type": "linear", "factor": 2},
    )
    assert len(new.inv_freq) == GOLDEN["head_dim"] // 4
    np.testing.assert_array_equal(new.inv_freq, old.inv_freq)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rope_type": "dynamic"}, "rope_type: expected one of default, linear, .*, got 'dynamic'"),
        ({"rope_theta": 0}, "rope_theta: expected a base above 1, got 0"),
        ({"type": "ntk"}, "type: expected one of default, .*, got 'ntk'"),
        ({"partial_rotary_factor": 1e29}, "partial_rotary_factor: expected an even part of 64"),
        ({"partial_rotary_factor": 1e308}, r"expected a number within 1e\+30 of zero, got 1e\+308"),
        ({"rope_type": "linear", "factor": 10**400}, r"factor: expected a number within 1e\+30 of zero"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e-320}, "beta_fast: expected a positive number"),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 10**400}, "a count"),
        ({"rope_type": "linear"}, "factor: expected a number, got None"),
        ({"rope_type": "linear", "factor": -1}, "factor: expected a positive number, got -1"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor: expected an even part of 64"),
        ({"rope_type": "longrope", "long_factor": [1.0]}, "long_factor: expected 32 positive factors"),
    ],
)
def test_refuses(parameters: dict, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(parameters)
