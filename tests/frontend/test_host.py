"""The headers for host code: structs of arguments that read a launch, and the parameters of each instance.

Whether CPU bodies use what they read correctly is the business of tests/kernels.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Result, Run

NATIVE = Path(__file__).resolve().parents[2] / "native"

# Every kind of argument, in an order that differs from the order of their indices.
SHADER = """
    #include <metal_stdlib>
    using namespace metal;

    constant bool flag [[function_constant(7)]];
    constant uint width [[function_constant(2)]];
    constant float dim [[function_constant(3)]];
    constant bool elsewhere [[function_constant(4)]];
    constant bool optional [[function_constant(5)]];
    constant bool chosen = is_function_constant_defined(optional) && optional;
    using Word = ulong;
    struct Params { uint rows; float eps; };
    constexpr constant uint kHalf = 16;
    constexpr constant uint kMost = 2 * kHalf;
    constexpr constant uint kThreads = 64;

    inline float narrow(uint i) { return i < width && !chosen ? dim : 0.0f; }
    kernel void other(device float* x) { x[0] = elsewhere; }

    // Dispatch: groups (rows), threads (kThreads)
    // Requires: rows <= kMost
    template <typename T, uint bits, typename U, bool wide = false>
    kernel void all_kinds(
        device T* y [[buffer(1)]],                                        // [rows, dim]
        device const T* x [[buffer(0)]],                                  // [rows, dim]
        device const float* bias [[buffer(2), function_constant(flag)]],  // [dim]
        constant uint& rows [[buffer(4)]],
        constant ushort& dim [[buffer(3)]],
        constant float& eps [[buffer(6), function_constant(flag)]],
        device atomic_uint& counter [[buffer(5)]],
        constant Params& params [[buffer(8)]],
        device const float4* quads [[buffer(7)]],
        device const Word* words [[buffer(9)]],
        const constant int strides[2] [[buffer(10)]],
        threadgroup U* scratch [[threadgroup(0)]],  // [rows]
        uint tid [[thread_index_in_threadgroup]]) {
      if (flag) y[0] = T(narrow(tid));
    }
    #define MAKE(name, ...) \\
      template [[host_name(#name)]] kernel decltype(all_kinds<__VA_ARGS__>) all_kinds<__VA_ARGS__>;
    MAKE(all_f32, float, 4, float)
    MAKE(all_bf16, bfloat, 2 + 1, float, true)
    MAKE(all_bf16_h, bfloat, 3, half)
"""

# Binds a launch by index, reads it by name.
PROGRAM = """
    #include <cstdio>
    #include <type_traits>
    #include "arguments/a.h"
    using namespace pyturbo;
    using namespace test::arguments;
    using A = all_kinds<BFloat>;
    static_assert(std::is_same_v<all_kinds_forms, Forms<all_kinds<float>, all_kinds<BFloat>>>);
    static_assert(std::is_same_v<decltype(A::x), const BFloat*> && std::is_same_v<decltype(A::y), BFloat*>);
    static_assert(std::is_same_v<decltype(A::counter), uint32_t*>);
    static_assert(std::is_same_v<decltype(A::words), const uint64_t*>);
    static_assert(std::is_same_v<decltype(A::strides), const int32_t*>);
    static_assert(std::is_same_v<decltype(A::params), const void*>);
    static_assert(std::is_same_v<decltype(A::quads), const void*>);
    static_assert(std::is_trivially_copyable_v<A>);
    static_assert(A::kMost == 32);
    static_assert(A::pt_types[0] == DType::bf16 && A::pt_types[1] == DType::raw);
    static_assert(sizeof A::pt_bits == 2 * sizeof A::bits && A::pt_bits[0] == 4 && A::pt_bits[1] == 3);
    int main() {
      char memory[11];
      uint32_t rows = 5, width = 9;
      uint16_t dim = 300;
      float eps = 0.5f;
      bool flag = FLAG;
      Arguments launch;
      for (int i = 0; i < 11; ++i) launch.buffers[i] = memory + i;
      launch.buffers[4] = &rows;
      launch.buffers[3] = &dim;
      launch.buffers[6] = &eps;
      launch.constants[0] = &flag;
      launch.constants[1] = &width;
      const ParameterInfo parameters[] = {
          {"T", DType::bf16, 0}, {"bits", DType::raw, 3}, {"U", DType::f32, 0}, {"wide", DType::raw, 1}};
      KernelInfo info{};
      info.parameters = parameters;
      const A a = A::pt_read(info, launch);
      const auto at = [&](const void* p) { return p ? int((const char*)p - memory) : -1; };
      std::printf("%d %d %d %d %d %d %d %d ", at(a.y), at(a.x), at(a.bias), at(a.counter), at(a.params),
                  at(a.quads), at(a.words), at(a.strides));
      std::printf("%u %u %g %d %u %u %d\\n", a.rows, a.dim, a.eps, a.flag, a.width, a.bits, a.wide);
    }
"""


def compile_and_run(result: Result, program: str) -> str:
    source, target = result.out / "program.cpp", result.out / "program"
    source.write_text(program)
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror"]
    paths = ["-I", str(NATIVE / "include"), "-I", str(result.out)]
    subprocess.run(["c++", *flags, *paths, str(source), "-o", str(target)], check=True)
    return subprocess.run([str(target)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("flag", "expected"),
    [("true", "1 0 2 5 8 7 9 10 5 300 0.5 1 9 3 1"), ("false", "1 0 -1 5 8 7 9 10 5 300 0 0 9 3 1")],
)
def test_every_kind_of_argument_is_read_by_its_index(run: Run, flag: str, expected: str) -> None:
    result = run(SHADER)
    assert result.errors == []
    assert compile_and_run(result, PROGRAM.replace("FLAG", flag)).strip() == expected


def test_an_argument_hides_a_constant_of_its_name_and_others_stay_away(run: Run) -> None:
    text = (run(SHADER).out / "arguments" / "a.h").read_text()
    assert text.count(" dim;") == 1
    assert "uint16_t dim;" in text
    assert text.count("elsewhere;") == 1  # the kernel `other` alone reaches it


def test_a_constant_that_may_be_undefined_stays_away(run: Run) -> None:
    result = run(SHADER)
    assert "optional" not in (result.out / "arguments" / "a.h").read_text()
    assert '"optional"' in result.cpp


def test_of_constants_the_struct_has_those_that_a_body_relies_on(run: Run) -> None:
    text = (run(SHADER).out / "arguments" / "a.h").read_text()
    assert text.count("static constexpr uint32_t kMost = 32;") == 1
    assert "kHalf" not in text
    assert "kThreads" not in text


def test_parameters_of_instances(run: Run) -> None:
    cpp = run(SHADER).cpp
    dtype = "::pyturbo::invoke::dtype<bfloat>"
    assert f'{{"T", {dtype}, 0}},\n    {{"bits", ::pyturbo::DType::raw, int64_t(2 + 1)}},' in cpp
    assert '{"wide", ::pyturbo::DType::raw, int64_t(true)},' in cpp


def test_types_without_a_host_name_stay_untyped(run: Run) -> None:
    result = run("""
        #include <metal_stdlib>
        using namespace metal;
        struct Pair { float a, b; };
        template <typename T, template <typename> class C, float (*F)(float), int N>
        kernel void k(device T* x, device const vec<T, N>* v, device T* const device* table) {}
        inline float f(float x) { return x; }
        template <typename T> struct Box {};
        template [[host_name("k1")]] kernel decltype(k<Pair, Box, f, 2>) k<Pair, Box, f, 2>;
        template [[host_name("k2")]] kernel decltype(k<float, Box, f, 2>) k<float, Box, f, 2>;
    """)
    assert result.errors == []
    text = (result.out / "arguments" / "a.h").read_text()
    assert "struct k {\n  int32_t N;  // template parameter\n  void* x;  // T\n" in text
    assert "  const void* v;  // vec<T, N>\n" in text
    assert "using k_forms = ::pyturbo::Forms<k>;" in text


def test_a_name_that_the_shader_does_not_have_does_not_compile(run: Run) -> None:
    result = run(SHADER)
    with pytest.raises(subprocess.CalledProcessError):
        compile_and_run(result, PROGRAM.replace("FLAG", "true").replace("at(a.bias)", "at(a.biases)"))


def test_an_argument_that_moves_is_read_from_its_new_index(run: Run) -> None:
    """A shader may reorder its arguments: host code that uses names does not change."""
    moved = SHADER.replace("[[buffer(0)]]", "[[buffer(12)]]").replace("[[buffer(1)]]", "[[buffer(0)]]")
    program = PROGRAM.replace("FLAG", "true").replace("memory[11]", "memory[13]").replace("i < 11", "i < 13")
    assert compile_and_run(run(moved), program).split()[:2] == ["0", "12"]


def test_headers_follow_the_folders_of_shaders(run: Run, tmp_path: Path) -> None:
    result = run("kernel void k(device float* x) {}", b__metal="kernel void l(constant uint& k) {}")
    assert "struct k {" in (result.out / "arguments" / "a.h").read_text()
    assert "struct l {\n  uint32_t k;\n" in (result.out / "arguments" / "b.h").read_text()
