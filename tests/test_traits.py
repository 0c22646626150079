"""What a device is good at is the device's own: its traits, and no other place that goes by its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pyturbo
from pyturbo._device import device_traits
from pyturbo._traits import Traits
from pyturbo.errors import ArgumentError
from pyturbo.ops.attention import key_blocks
from pyturbo.ops.mla import latent_blocks

PACKAGE = Path(__file__).resolve().parents[1] / "pyturbo"
DEVICES = {"cpu", "cpu:reference", "cuda", "metal"}

TRAITS = {
    "cpu": Traits(256, 3, 8, 0, 0, 8, 1, 2, 0, 0, False, "any"),
    "cpu:reference": Traits(32, 16, 8, 0, 0, 32, 1, 2, 0, 0, True, "any"),
    "cuda": Traits(2048, 1, 128, 132, 924, 8, 16, 64, 32, 64, True, "none"),
    "metal": Traits(512, 1, 128, 40, 80, 32, 16, 64, 0, 64, True, "pages"),
}


def test_traits_of_each_device(device: pyturbo.Device) -> None:
    assert device.traits == device_traits(device.name) == TRAITS[device.name]


@pytest.mark.parametrize(
    ("heads", "dim", "blocks"), [(2, 256, 66), (8, 128, 33), (8, 256, 17), (1, 64, 128), (300, 256, 1)]
)
def test_parts_of_keys_fill_a_gpu(heads: int, dim: int, blocks: int) -> None:
    """One threadgroup for each of the 132 multiprocessors of an H200, two where heads are small."""
    assert key_blocks(pyturbo.Device("cuda"), heads, dim) == blocks
    assert key_blocks(pyturbo.Device("cpu", threads=1), heads, dim) == TRAITS["cpu"].attention_blocks


@pytest.mark.parametrize(("heads", "blocks"), [(1, 128), (20, 128), (48, 88), (128, 33), (9000, 1)])
def test_parts_of_latents_fill_a_gpu(heads: int, blocks: int) -> None:
    """Two threadgroups, of 16 heads each, for each of the 132 multiprocessors of an H200."""
    assert latent_blocks(pyturbo.Device("cuda"), heads) == blocks
    assert latent_blocks(pyturbo.Device("cpu", threads=1), heads) == TRAITS["cpu"].attention_blocks


def test_python_has_every_trait_of_the_native_struct() -> None:
    header = Path(pyturbo.get_include(), "pyturbo", "device_kind.h").read_text(encoding="utf-8")
    fields = re.search(r"struct Traits \{(.*?)\};", header, re.DOTALL)
    assert fields
    assert tuple(re.findall(r"^ +\S+ (\w+);", fields[1], re.MULTILINE)) == Traits._fields


def test_traits_of_a_device_stay_when_it_is_closed() -> None:
    device = pyturbo.Device("cpu", threads=1)
    device.close()
    assert device.traits == TRAITS["cpu"]


def test_traits_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        pyturbo.Device("cpu", threads=1).traits.chunk = 1  # type: ignore[misc]


def test_traits_of_an_unknown_device() -> None:
    with pytest.raises(ArgumentError, match="device: expected one of cpu, .*, got 'abacus'"):
        device_traits("abacus")


def names_in_tables(source: str) -> list[int]:
    """Return the lines where a name of a device is a key of a dict or is compared with something."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        keys = node.keys if isinstance(node, ast.Dict) else []
        compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for value in (*keys, *compared):
            elements = value.elts if isinstance(value, (ast.Tuple, ast.List, ast.Set)) else [value]
            lines += [e.lineno for e in elements if isinstance(e, ast.Constant) and e.value in DEVICES]
    return lines


def test_no_table_goes_by_the_name_of_a_device() -> None:
    tables = {str(file): names_in_tables(file.read_text()) for file in PACKAGE.rglob("*.py")}
    assert {file: lines for file, lines in tables.items() if lines} == {}


def test_tables_that_go_by_name_are_found() -> None:
    source = 'a = {"metal": 1}\nb = name == "cpu"\nc = name in ("x", "cpu:reference")\nd = Device("cpu")\n'
    assert sorted(names_in_tables(source)) == [1, 2, 3]
