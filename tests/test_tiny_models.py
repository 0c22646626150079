"""The tiny models rebuild, on this machine and with this NumPy, the weights that the goldens were made of."""

from pathlib import Path

import numpy as np
import pytest

from tiny_configs import FP_MODELS, MODELS
from tiny_models import checksum, hf_tensors, mlx_tensors

GOLDENS = Path(__file__).parent / "goldens" / "models"


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_goldens(name):
    model = MODELS[name]
    with np.load(GOLDENS / f"{name}.npz") as golden:
        np.testing.assert_array_equal(golden["tokens"], model.tokens())
        assert golden["hf_checksum"] == checksum(hf_tensors(model))
        assert golden["mlx_checksum"] == checksum(mlx_tensors(model)[0])


@pytest.mark.parametrize("name", FP_MODELS)
def test_weights_of_small_floats_are_those_of_the_goldens(name):
    model = FP_MODELS[name]
    with np.load(GOLDENS / f"{name}.npz") as golden:
        np.testing.assert_array_equal(golden["tokens"], model.tokens())
        assert golden["mlx_checksum"] == checksum(mlx_tensors(model)[0])


def test_every_model_has_a_golden():
    assert {path.stem for path in GOLDENS.glob("*.npz")} == {*MODELS, *FP_MODELS}
