"""What Apple's compiler would refuse and clang can see: each shader, read with Metal's address spaces.

Clang reads the shaders as C++14 with the words device, constant and threadgroup as numbered address spaces
(metal_stdlib beside this file), after the few spellings it does not know are replaced. Warnings are errors,
as where the metallib is built.

Not seen here: a pointer without an address space, which the front end refuses; a cast by way of an integer;
lambdas and recursion; what attributes say; whatever Metal decides after the syntax tree.
Stricter than Metal: functions of its library must be declared in metal_stdlib, and clang does not copy a
struct from device, constant or threadgroup memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("shaders", "tests/shaders")
SHADERS = sorted(
    str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.metal")
)

OLDEST = 17  # the first with arithmetic of bfloat
FLAGS = [
    *("--target=arm64-apple-macos14", "-x", "c++", "-std=c++14", "-nostdinc", "-fsyntax-only"),
    *("-fno-exceptions", "-fno-rtti", "-fno-lax-vector-conversions", "-fno-color-diagnostics"),
    *("-Xclang", "-cl-single-precision-constant", "-Xclang", "-ast-dump"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"),
]

ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.DOTALL)
FUNCTION_CONSTANT = re.compile(r"^(?=constant .*\[\[function_constant)", re.MULTILINE)
THREADGROUP_VARIABLE = re.compile(r"^( +)(?=threadgroup [\w<>:, ]*\w[\[,;])", re.MULTILINE)
VECTOR = re.compile(r"\b((?:bool|u?(?:char|short|int|long)|half|bfloat|float)[234]|vec<[\w, ]+>)\(")
LITERAL = re.compile(r"\b(\d+\.\d*(?:e[-+]?\d+)?)(h|bf)\b")

# In a syntax tree, where a node names its file or line if that is new.
CONVERSION = "<AddressSpaceConversion>"
PLACE = re.compile(r"(?:\bline|([^\s<]+\.(?:metal|h))):(\d+):\d+")


def newest_clang() -> str | None:
    versions: dict[str, int] = {}
    for name in ("clang", *(f"clang-{version}" for version in range(OLDEST, 31))):
        if shutil.which(name):
            text = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            versions[name] = int(text.partition("clang version ")[2].partition(".")[0])
    newest = max(versions, key=versions.__getitem__, default="")
    return newest if versions.get(newest, 0) >= OLDEST else None


CLANG = newest_clang()
MISSING = f"clang {OLDEST} or newer is missing"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CLANG is None and os.environ.get("CI") != "true", reason=MISSING),
]


def as_clang_reads_it(text: str) -> str:
    """`text` with its lines where they are, and MSL's own spellings as C++."""
    text = FUNCTION_CONSTANT.sub("extern ", text)
    text = ATTRIBUTE.sub(lambda match: "".join(re.findall(r"\\?\n", match[0])), text)
    text = THREADGROUP_VARIABLE.sub(r"\1static ", text)
    text = LITERAL.sub(lambda match: f"{'half' if match[2] == 'h' else 'bfloat'}({match[1]}f)", text)
    return VECTOR.sub(r"vector_of<\1>(", text)


def write_sources(root: Path, changed: dict[str, str] | None = None) -> None:
    """All shaders and headers under `root`, as clang reads them; `changed` has the text of some of them."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".metal", ".h"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(as_clang_reads_it((changed or {}).get(name, path.read_text())))


def messages(root: Path, shader: str) -> list[str]:
    """What clang says of a shader under `root`; nothing if it accepts it."""
    assert CLANG, MISSING
    command = [CLANG, *FLAGS, f"-I{Path(__file__).parent}", f"-I{root / 'shaders'}", shader]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
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
        "threadgroup float* inputs = memory",
        "thread float* inputs = memory",
        "cannot initialize a variable of type 'float *'",
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
        "void scale(threadgroup const float* factors)",
        "void scale(thread const float* factors)",
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
