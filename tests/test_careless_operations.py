"""Every operation with arguments of wrong types: it says which argument was wrong and what was expected.

Arrays with other axes are refused by an exception of pyturbo, or fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from careless import Thing, complaints, unknown_keyword
from pyturbo import ops
from pyturbo.errors import TurboError
from valid_calls import operation_calls, other_calls

OPERATIONS = [name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))]

#: Values that are valid for an argument although they look wrong.
FITTING = {
    ("gather_rows", "index"): (3,),
    ("mla_attention", "weights"): (None,),
    **{(name, "global_scale"): (3,) for name in ("fp_matmul", "fp_embed", "fp_dequantize", "fp_quantize")},
}

#: Further names that messages use for parts of an argument.
PARTS = {("mla_append", "cache"): ("latents",)}


def wrong_values(name: str, value: Any) -> list[Any]:
    """Return wrong values for an argument that is called `name` and has a valid value."""
    wrong: list[Any] = [Thing(), ["a", "b"], {}, b"x", None]
    if name == "device":
        return [*wrong, 3, "nodevice"]
    if name == "dtype":
        return [Thing(), "typo", 3]
    if isinstance(value, bool):
        return [*wrong, "false", 2]
    if isinstance(value, str):
        return [*wrong, "typo", 3]
    if isinstance(value, int):
        return [*wrong, "text", 1.5, -1, 2**70]
    if isinstance(value, float):
        return [*wrong, "text"]
    return [*wrong, "text", 3, np.zeros(0, np.float32), np.array(["a"], object)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_wrong_arguments_are_named(name: str) -> None:
    function, arguments = getattr(ops, name), operation_calls()[name]
    function(**arguments)
    found = unknown_keyword(function, arguments)
    for parameter in inspect.signature(function).parameters.values():
        key = parameter.name
        assert key in arguments or key == "device", f"no valid value of {key} in valid_calls.py"
        fitting = [*FITTING.get((name, key), ()), *([None] if parameter.default is None else [])]
        wrong = [
            value
            for value in wrong_values(key, arguments.get(key))
            if not any(value is fits or (type(value) is int and value == fits) for fits in fitting)
        ]
        found += complaints(function, arguments, key, wrong, *PARTS.get((name, key), ()))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", OPERATIONS)
def test_scalars_of_numpy_are_numbers(name: str) -> None:
    def scalar(value: Any) -> Any:
        kinds = {bool: np.bool_, int: np.int64, float: np.float64}
        return kinds.get(type(value), lambda value: value)(value)

    function = getattr(ops, name)
    want = function(**operation_calls()[name])
    got = function(**{key: scalar(value) for key, value in operation_calls()[name].items()})
    for one, other in zip(want, got) if isinstance(want, tuple) else [(want, got)]:
        np.testing.assert_array_equal(one, other)


def of_other_axes(value: Any) -> Iterator[Any]:
    """Return what an argument becomes when one of its arrays has fewer, more, longer or empty axes."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            for other in of_other_axes(part):
                parts = (*value[:i], other, *value[i + 1 :])
                yield type(value)(*parts) if hasattr(value, "_fields") else parts
    elif isinstance(value, (np.ndarray, list)):
        array = np.asarray(value)
        yield from (array.ravel()[:1].reshape(()), array.ravel(), array[None], array[..., None], array[0])
        yield np.zeros((0,) * array.ndim, array.dtype)
        for axis in range(array.ndim):
            yield from (array.take(index, axis) for index in ([], [0], [0] * (array.shape[axis] + 1)))


def findings_of_axes(name: str, arguments: dict[str, Any]) -> list[str]:
    function, found = getattr(ops, name), []
    function(**arguments)
    for key in arguments:
        for other in of_other_axes(arguments[key]):
            try:
                function(**{**arguments, key: other})
            except TurboError:
                continue
            except Exception as error:  # whatever it is, it is a finding
                found.append(f"{name}: {key}={other!r:.60}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_axes_are_refused_or_fit(name: str) -> None:
    found = findings_of_axes(name, operation_calls()[name])
    assert not found, "\n".join(found)


def test_other_axes_of_other_forms_are_refused_or_fit() -> None:
    found = [finding for name, arguments in other_calls() for finding in findings_of_axes(name, arguments)]
    assert not found, "\n".join(found)
