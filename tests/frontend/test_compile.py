"""Generated code compiles against our metal_stdlib, and what it cannot check fails at the shader's line.

Running kernels is the business of tests/kernels and tests/test_language.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

NATIVE = Path(__file__).resolve().parents[2] / "native"

SHADER = """
    #include <metal_stdlib>
    using namespace metal;

    constant bool flag [[function_constant(0)]];
    constant uint width [[function_constant(2)]];
    constant uint chosen = is_function_constant_defined(width) ? width : 8;
    constant float table[4] = {1, 2, 3, 4};
    constant constexpr uint kThreads = 64;

    struct Params { uint rows; uint dim; float eps; };
    struct Pair { float value; uint index; };

    template <typename T>
    inline T lookup(constant float* values, uint i) { return T(values[i % 4]); }

    namespace nested {

    // y = x * table, row by row.
    // Dispatch: groups (params.rows, ceil_div(params.dim, kThreads)), threads (kThreads)
    // Requires: params.dim > 0; min(params.rows, chosen) <= 8; N >= 1; !flag || eps > 0
    template <typename T, int N = 2>
    [[kernel, max_total_threads_per_threadgroup(64)]] void scale(
        device const T* x [[buffer(0)]],  // [params.rows, params.dim]
        device T* y [[buffer(1)]],        // [params.rows * params.dim]
        device const float* bias [[buffer(2), function_constant(flag)]],  // [params.dim]
        constant Params& params [[buffer(3)]],
        constant float& eps [[buffer(4)]],
        device atomic_uint& counter [[buffer(5)]],
        const constant int64_t strides[2] [[buffer(6)]],  // [2]
        threadgroup T* row [[threadgroup(0)]],  // [kThreads * N]
        ushort2 tg [[threadgroup_position_in_grid]],
        ushort2 tid [[thread_position_in_threadgroup]],
        ushort lane [[thread_index_in_simdgroup]]) {
      constexpr int size = N * 2;
      threadgroup float sums[size][kThreads / 32], total;
      threadgroup Pair best;
      threadgroup atomic_uint hits;
      const uint i = tg.x * params.dim + tg.y * kThreads + tid.x;
      row[tid.x] = x[i] * lookup<T>(table, i);
      float sum = simd_sum(float(row[tid.x]));
      if (lane == 0) sums[0][tid.x / 32] = sum;
      if (tid.x == 0) atomic_store_explicit(&hits, 0u, memory_order_relaxed);
      if (tid.x == 0) { total = 0.0f; best = {1.0f, 2}; }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (flag && i < min(chosen, width)) sum += bias[i] + total + best.value + strides[0] + eps;
      atomic_fetch_add_explicit(&counter, 1u, memory_order_relaxed);
      y[i] = T(sum + sums[0][0]) + 1.5h;
    }

    }

    template [[host_name("scale_f32")]] [[kernel]] decltype(nested::scale<float, 4>) nested::scale<float, 4>;
    template [[host_name("scale_f16")]] [[kernel]] decltype(nested::scale<half>) nested::scale<half>;

    kernel void plain(device float* a, constant uint& d, uint3 i [[thread_position_in_grid]]) { a[i.x] = d; }
"""


def compile_(source: Path, *options: str) -> str:
    flags = [*options, "-fsyntax-only", "-std=c++20", "-fsigned-char", "-Wall", "-Wno-literal-suffix"]
    paths = [f"-I{NATIVE / name}" for name in ("include", "msl", "msl/host")]
    return subprocess.run(
        ["c++", *flags, *paths, str(source)], capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.slow
def test_everything_at_once(run: Run) -> None:
    result = run(SHADER)
    assert result.errors == []
    assert compile_(result.out / "a.cpp") == ""
    assert compile_(result.out / "test_tables.cpp") == ""
    assert compile_(result.out / "test_tables.cpp", "-DPYTURBO_CHECKED") == ""


def test_a_file_without_kernels(run: Run) -> None:
    assert compile_(run("inline float f(float x) { return x; }").out / "a.cpp") == ""


def test_errors_of_the_compiler_name_the_shader(run: Run) -> None:
    result = run("""
        kernel void k(constant float* x, uint i [[thread_position_in_grid]]) {
          int unused = 0;
          x[i] = 1;
        }
    """)
    assert "shaders/a.metal:3:" in compile_(result.out / "a.cpp")


def test_threadgroup_memory_only_the_compiler_can_measure(run: Run) -> None:
    result = run("""
        struct Large { float values[10000]; };
        kernel void k(device float* x) {
          threadgroup Large large;
          x[0] = large.values[0];
        }
    """)
    assert result.kernels["k"]["threadgroup_bytes"] is None
    messages = compile_(result.out / "a.cpp")
    assert "shaders/a.metal:2:" in messages
    assert "k: expected at most 32768 bytes of threadgroup memory" in messages
