"""The CUDA text of a shader: its instances, function constants and pragmas. tests/nvrtc compiles texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontend.conftest import Run

TEXT = """
    #include <metal_stdlib>
    using namespace metal;

    constant bool doubled [[function_constant(3)]];
    constant float scale [[function_constant(5)]];
    constexpr constant uint kThreads = 64;
    struct Sizes { uint rows; uint columns; };

    // y = x.
    // Dispatch: groups (count), threads (kThreads, side)
    template <typename T, uint side>
    [[kernel]] void copies(
        device const T* x [[buffer(0)]],  // [count]
        device T* y [[buffer(1), function_constant(doubled)]],  // [count]
        constant uint& count [[buffer(2)]],
        constant Sizes& sizes [[buffer(3)]],
        constant float* table [[buffer(4)]],  // [count]
        device atomic_uint& total [[buffer(5)]],
        threadgroup T* row [[threadgroup(0)]],
        uint2 tg [[threadgroup_position_in_grid]],
        uint lane [[thread_index_in_simdgroup]]) {
      threadgroup float rows[side][4];
      if (doubled) rows[0][lane] = 1.5 + 0x1p-3;
    #pragma unroll
      for (uint i = 0; i < side; ++i) y[i] = x[i] * T(scale);
    }
    template [[host_name("copies_half")]] kernel decltype(copies<half, 2>) copies<half, 2>;

    kernel void waits(device float* x [[buffer(0)]]) {  // [1]
    }
"""


def test_an_instance_is_a_function_of_its_host_name(run: Run) -> None:
    text = run(TEXT).cu
    assert (
        "#define PT_KERNEL(pt_name, pt_threads, T, side) "
        "PT_GEOMETRY(pt_name, T, side) "
        'extern "C" __global__ void __launch_bounds__(PT_THREADS(pt_threads, T, side), PT_RESIDENT) '
        "pt_name(const T* x, T* y, const __grid_constant__ uint count, const __grid_constant__ Sizes sizes, "
        "const float* table, atomic_uint* total, unsigned row) { ::pyturbo::invoke::begin(); "
        "shader::copies<T, side>(x, y, count, sizes, table, *total, "
        "(T*)(::pyturbo::invoke::shared_memory + row), "
        "::pyturbo::invoke::threadgroup_position_in_grid<uint2>(), "
        "::pyturbo::invoke::thread_index_in_simdgroup<uint>()); ::pyturbo::invoke::end(); }\n"
        "#ifdef PT_INSTANCE_copies_half\n"
        "PT_KERNEL(copies_half, 128, half, 2)\n"
        "#endif\n"
        "#undef PT_KERNEL\n"
    ) in text


def test_without_a_contract_any_number_of_threads_is_allowed(run: Run) -> None:
    assert "\nPT_KERNEL(waits, 1024)\n" in run(TEXT).cu


def test_function_constants_are_macros_of_the_compilation(run: Run) -> None:
    text = run(TEXT).cu
    assert re.findall(r"#ifdef (PT_C\d+)", text) == ["PT_C0", "PT_C1"]
    assert "static const PYTURBO_CONSTANT(float, 1) scale{};" in text


def test_both_forms_are_the_same_but_for_marks(run: Run) -> None:
    """Markers of statements are for hosts, pragmas for GPUs."""
    result = run(TEXT)
    loop = "for (uint i = 0; i < side; ++i)"
    assert f'_Pragma("unroll") {loop}' in result.cu
    assert "unroll" not in result.cpp
    assert "PYTURBO_AT" not in result.cu
    declared = "typedef float pt_rows[side][4]; PYTURBO_THREADGROUP(0, pt_rows, rows);"
    literal = "rows[0][lane] = 1.5f + 0x1p-3f;"
    for text in (result.cu, result.cpp):
        assert declared in text
        assert literal in text


def test_lines_are_those_of_the_shader(run: Run) -> None:
    text = run('#include "b.h"\n' + TEXT, b__h="inline int two() { return 2; }\n").cu
    assert re.findall(r'#line \d+ "(.*)"', text)[:2] == ["b.h", "a.metal"]


HEADER = """
    // Rows.
    inline uint twice(uint rows) { return rows + rows; }
"""
OF_HEADER = """
    #include "rows.h"

    // Dispatch: groups (1), threads (32)
    kernel void doubles(device uint* y [[buffer(0)]]) {  // [1]
      y[0] = twice(y[0]);
    }
"""


def test_a_form_of_its_own_stands_before_a_header(run: Run) -> None:
    form = "inline uint twice(uint rows) { return __mul24(rows, 2); }\n"
    text = run(OF_HEADER, rows__h=HEADER, **{"cuda/rows.h": form}).cu
    own = text.index('#if __CUDA_ARCH__ >= 800\n#line 1 "cuda/rows.h"\n' + form)
    other = text.index("#else\n", own)
    header = text.index("return rows + rows;", other)
    assert header < text.index("#endif\n", other) < text.index("y[0] = twice(y[0]);")


def test_a_form_may_have_a_geometry_of_its_own(run: Run) -> None:
    form = "struct Wide { enum { kSpan = 2, kThreads = 64, kBytes = 128 }; };\n#define PT_FORM(...) Wide\n"
    text = run(OF_HEADER, rows__h=HEADER, **{"cuda/rows.h": form + HEADER}).cu
    geometry = ", ".join(f"PT_FORM(__VA_ARGS__)::{name}" for name in ("kSpan", "kThreads", "kBytes"))
    assert (
        text.index(form)
        < text.index("#ifdef PT_FORM")
        < text.index("#define PT_PARTS 1")
        < text.index(f"{{{geometry}, PT_PARTS}}")
        < text.index("PT_KERNEL(doubles, 32)")
    )


def test_a_form_has_no_threadgroup_arguments(run: Run) -> None:
    text = run(
        """
    // Dispatch: groups (1), threads (32)
    kernel void sums(device uint* y [[buffer(0)]],                // [1]
                     threadgroup uint* parts [[threadgroup(0)]],  // [32]
                     uint tid [[thread_index_in_threadgroup]]) {
      parts[tid] = tid;
      y[0] = parts[0];
    }
"""
    ).cu
    assert "#ifdef PT_FORM\n#error sums: expected no threadgroup argument beside PT_FORM\n#endif\n" in text


def test_a_header_without_one_stands_alone(run: Run) -> None:
    text = run(OF_HEADER, rows__h=HEADER).cu
    assert "__CUDA_ARCH__" not in text


OF_CHARS = """
    // Dispatch: groups (1), threads (1)
    kernel void signs(device const char* x [[buffer(0)]],          // [1]
                      device const unsigned char* y [[buffer(1)]],  // [1]
                      device int* z [[buffer(2)]]) {                // [1]
      z[0] = int(x[0]) + int(y[0]) + int(char(200));
    }
"""


def test_chars_have_a_sign_whatever_the_host_has(run: Run) -> None:
    text = run(OF_CHARS).cu
    chars = re.findall(r"(\w+) char\b", text)
    assert len(chars) >= 3
    assert set(chars) == {"signed", "unsigned"}
