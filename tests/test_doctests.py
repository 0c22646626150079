"""The examples in docstrings run and give what they show, those of compiled modules too."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pyturbo
import pyturbo.model
import pyturbo.ops._run

#: What in the folder of the package is a library, or there for tests only.
LEFT_OUT = (
    "libpyturbo",
    "libsoft_cuda",
    "libsoft_metal",
    "_native_tests",
    "_soft_cuda_tests",
    "_soft_metal_tests",
    "__main__",
    "serve.ray",  # Ray uses names that pydantic warns about; tests/serve/test_ray.py runs it in a process
)


def modules() -> Iterator[ModuleType]:
    yield pyturbo
    for module in pkgutil.walk_packages(pyturbo.__path__, "pyturbo."):
        if module.name.removeprefix("pyturbo.") not in LEFT_OUT:
            yield importlib.import_module(module.name)


def examples() -> list[doctest.DocTest]:
    scope = {"np": np, "pyturbo": pyturbo}
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for module in modules() for test in finder.find(module, globs=scope)]
    return [test for test in found if test.examples and ".__test__." not in test.name]


@pytest.mark.parametrize("example", examples(), ids=lambda test: test.name)
def test_examples_run(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (pyturbo.model, pyturbo.ops._run):  # the results shown are those of the CPU
        monkeypatch.setattr(module, "device_list", lambda: ["cpu"])
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.failed == 0, "".join(said)


def test_what_most_people_use_first_has_examples() -> None:
    shown = {test.name for test in examples()}
    for name in (
        "pyturbo",
        "pyturbo.model.load",
        "pyturbo.model.Model.stream",
        "pyturbo.engine.session.Session",
        "pyturbo._device.Device",
        "pyturbo._program.Program",
        "pyturbo._sampling.Sampler",
    ):
        assert name in shown


def test_every_public_name_is_explained() -> None:
    for name in pyturbo.__all__:
        value = getattr(pyturbo, name)
        assert inspect.getdoc(value), name
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert inspect.getdoc(member), f"{name}.{attribute}"
