"""Arrays of threads are registers: clang optimises each shader until nothing of it is left in thread memory.

An array stays there if a loop over it is not unrolled, or if its elements are chosen by address. Every kernel
is compiled, with the value of no function constant; of instances that differ in an element type, one. A
simdgroup matrix is a value of two elements.

Not seen here: whether there are enough registers; arrays that only Apple's compiler would leave in memory.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pyturbo
from msl.compiler import MARKS, clang, texts, write_sources

pytestmark = MARKS

FLAGS = [
    *("-O2", "-S", "-emit-llvm", "-o", "-"),
    *("-fno-builtin", "-fno-vectorize", "-fno-slp-vectorize"),  # loops do not become calls of a C library
]
INLINED = """\
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
{}
#pragma clang attribute pop
"""

INSTANCE = re.compile(r"\btemplate\s+\[\[[^;]*;|\bINSTANTIATE_\w+\([^()]*\)")
OTHER_TYPE = re.compile(r"\b(?:float|bfloat)\b")
OTHER_INSTANCE = re.compile(r"_(?:f32|bf16)(?:_|$)")

FUNCTION = re.compile(r"^define .*?@_ZN?(\d+)(\w+)", re.MULTILINE)
VARIABLE = re.compile(r"= alloca (.*), align")


def of_one_type(text: str) -> str:
    """`text` without the instances for elements of other types than half."""
    return INSTANCE.sub(lambda match: "" if OTHER_TYPE.search(match[0]) else match[0], text)


def write_inlined(root: Path, changed: dict[str, str] | None = None) -> None:
    """Write sources of which clang inlines every function, as Metal does."""
    every = {**texts(), **(changed or {})}
    write_sources(root, {name: INLINED.format(of_one_type(text)) for name, text in every.items()})


def functions(root: Path, shader: str) -> list[tuple[str, list[str]]]:
    """Return the functions of a shader that are not inlined, and of each what is in thread memory."""
    result = clang(root, shader, *FLAGS)
    assert result.returncode == 0, result.stderr
    _, *parts = FUNCTION.split(result.stdout)
    return [
        (rest[: int(length)], VARIABLE.findall(body))
        for length, rest, body in zip(parts[::3], parts[1::3], parts[2::3])
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    write_inlined(root)
    return root


@pytest.mark.parametrize("shader", sorted({kernel["file"] for kernel in pyturbo.kernels().values()}))
def test_nothing_is_in_thread_memory(sources: Path, shader: str) -> None:
    instances = [name for name, kernel in pyturbo.kernels().items() if kernel["file"] == shader]
    compiled = functions(sources, f"shaders/{shader}")
    assert len(compiled) == sum(not OTHER_INSTANCE.search(name) for name in instances)
    assert [kernel for kernel in compiled if kernel[1]] == []


# shader, file that is changed, what is replaced, by what
MUTATIONS = {
    "loop that is not unrolled": (
        "mla/mla_turbo_attention.metal",
        "shaders/attention/tiled.h",
        "#pragma unroll\n    for (uint c = 0; c < max_dim; c += Shape::kColumns) {",
        "for (uint c = 0; c < max_dim; c += Shape::kColumns) {",
    ),
    "index that is not known": (
        "moe/route.metal",
        "shaders/moe/choose.h",
        "if (lane + 32 * i == best.index) keys[i] = 0;",
        "keys[best.index % kPerLane] = 0;",
    ),
    "element chosen by address": (
        "delta/delta_net.metal",
        "shaders/common/lane_sums.h",
        "const float low = p[i];",
        "const float low = p[upper ? i + stride : i];",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_an_array_in_memory_is_found(tmp_path: Path, mutation: str) -> None:
    shader, file, what, by_what = MUTATIONS[mutation]
    changed = texts()[file].replace(what, by_what)
    assert changed != texts()[file]
    write_inlined(tmp_path, {file: changed})
    assert any(variables for _, variables in functions(tmp_path, f"shaders/{shader}"))
