"""Vectors as NVRTC compiles them: one load and one store each. How fast that is, only a GPU can tell."""

from __future__ import annotations

import re
import sys

import pytest

from nvrtc.compiler import compile_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NVRTC is for Linux")

TEXT = """
#include <metal_stdlib>
using V = msl::metal::{vector};
extern "C" __global__ void copy(const V* x, V* y) {{
  V first = x[threadIdx.x];       // copied
  V second;
  second = x[threadIdx.x + 32];   // assigned
  y[threadIdx.x] = first + second;
}}
"""


@pytest.mark.parametrize(
    ("vector", "access"),
    [
        ("uint4", "v4.u32"),
        ("float4", "v4.f32"),
        ("float2", "v2.f32"),
        ("half4", "v4.u16"),
        ("uchar4", "v4.u8"),
    ],
)
def test_a_vector_is_loaded_and_stored_in_one_piece(vector: str, access: str) -> None:
    done = compile_text(TEXT.format(vector=vector), "copy.cu", ["-arch=sm_90"])
    assert done.accepted, done.log
    accesses = re.findall(r"\b(ld|st)\.global\.(\S+)", done.ptx)
    assert accesses == [("ld", access), ("ld", access), ("st", access)]
