"""What Apple's compiler would refuse and clang can see: each shader, read with Metal's address spaces.

Warnings are errors, as where the metallib is built.

Not seen here: a pointer without an address space, which the front end refuses; a cast by way of an integer;
lambdas and recursion; what attributes say; whatever Metal decides after the syntax tree.
Stricter than Metal: functions of its library must be declared in metal_stdlib, and clang does not copy a
struct from device, constant or threadgroup memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from msl.compiler import MARKS, ROOT, SHADERS, clang, write_sources

pytestmark = MARKS

FLAGS = [
    *("-fsyntax-only", "-Xclang", "-ast-dump"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"),
]

# In a syntax tree, where a node names its file or line if that is new.
CONVERSION = "<AddressSpaceConversion>"
PLACE = re.compile(r"(?:\bline|([^\s<]+\.(?:metal|h))):(\d+):\d+")


def messages(root: Path, shader: str) -> list[str]:
    """What clang says of a shader under `root`; nothing if it accepts it."""
    result = clang(root, shader, *FLAGS)
    assert (result.returncode == 0) == (result.stderr == "")
    return [*result.stderr.splitlines(), *casts_across_spaces(result.stdout)]


def casts_across_spaces(tree: str) -> Iterator[str]:
    """Clang allows such casts in C++ and marks them in its syntax tree."""
    file, line = "", ""
    for node in tree.splitlines() if CONVERSION in tree else ():
        for place in PLACE.finditer(node):
            file, line = place[1] or file, place[2]
        if CONVERSION in node:
            yield f"{file}:{line}: error: cast across address spaces"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    write_sources(root)
    return root


@pytest.mark.parametrize("shader", SHADERS)
def test_accepted(sources: Path, shader: str) -> None:
    assert messages(sources, shader) == []


# shader, file that is changed, what is replaced, by what, part of the message
MUTATIONS = {
    "device argument for thread memory": (
        "shaders/affine/affine_matvec.metal",
        "shaders/common/rows.h",
        "thread float* sums)",
        "device float* sums)",
        "no matching function",
    ),
    "device reference to a thread object": (
        "shaders/affine/affine_embed.metal",
        "shaders/affine/affine.h",
        "inline float2 scale_of(thread const",
        "inline float2 scale_of(device const",
        "no matching function",
    ),
    "constant reference to a thread object": (
        "shaders/affine/affine_embed.metal",
        "shaders/affine/affine_embed.metal",
        "const Affine<bits, S> table =",
        "constant Affine<bits, S>& table =",
        "changes address space",
    ),
    "threadgroup address in a thread pointer": (
        "shaders/affine/affine_matmul.metal",
        "shaders/common/tile.h",
        "threadgroup uchar* inputs = ",
        "thread uchar* inputs = ",
        "cannot initialize a variable of type 'uchar *'",
    ),
    "member in another address space": (
        "shaders/norm/rms_norm.metal",
        "shaders/common/reduce.h",
        "threadgroup float* partials;",
        "thread float* partials;",
        "cannot initialize a member subobject of type 'float *'",
    ),
    "cast across address spaces": (
        "shaders/affine/affine_matmul.metal",
        "shaders/common/tile.h",
        "(device const float4*)",
        "(thread const float4*)",
        "tile.h:{line}: error: cast across address spaces",
    ),
    "cast of a reference": (
        "tests/shaders/language.metal",
        "tests/shaders/language.metal",
        "out[0] = v.x;",
        "out[0] = (thread float&)*out;",
        "language.metal:{line}: error: cast across address spaces",
    ),
    "matrix loaded from thread memory": (
        "shaders/attention/attention.metal",
        "shaders/attention/tile.h",
        "load_block(threadgroup const T* tile",
        "load_block(thread const T* tile",
        "no matching function",
    ),
    "write to constant memory": (
        "shaders/affine/affine_matmul.metal",
        "shaders/affine/affine_matmul.metal",
        "const uint token =",
        "tokens = 3;\n  const uint token =",
        "const-qualified",
    ),
    "min of int and uint": (
        "shaders/affine/affine_matmul.metal",
        "shaders/affine/affine_matmul.metal",
        "min(kTileTokens, tokens",
        "min(32, tokens",
        "ambiguous",
    ),
    "half4 as float4": (
        "tests/shaders/language.metal",
        "tests/shaders/language.metal",
        "float4 v = float4(h[0].wzyx);",
        "float4 v = h[0].wzyx;",
        "cannot initialize",
    ),
    "double": (
        "shaders/norm/rms_norm.metal",
        "shaders/norm/inverse_norm.h",
        "float sum = 0",
        "double sum = 0",
        "poisoned",
    ),
    "C++17": (
        "tests/shaders/language.metal",
        "tests/shaders/language.metal",
        "if (doubled)",
        "if constexpr (true)",
        "C++17 extension",
    ),
    "signed and unsigned compared": (
        "shaders/norm/rms_norm.metal",
        "shaders/norm/inverse_norm.h",
        "uint i = row.index",
        "int i = row.index",
        "different signs",
    ),
    "unused constant": (
        "shaders/moe/route.metal",
        "shaders/moe/route.metal",
        "constexpr constant uint kTokens",
        "constexpr constant uint kUnused = 1;\nconstexpr constant uint kTokens",
        "unused variable 'kUnused'",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_refused(tmp_path: Path, mutation: str) -> None:
    shader, file, what, by_what, expected = MUTATIONS[mutation]
    text = (ROOT / file).read_text()
    changed = text.replace(what, by_what)
    assert changed != text
    expected = expected.format(line=1 + text[: text.index(what)].count("\n"))
    write_sources(tmp_path, {file: changed})
    assert any(expected in message for message in messages(tmp_path, shader))
