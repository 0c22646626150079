"""Forms of kernels, instances, arguments and constants that published shaders use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

PLAIN = "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }"
TEMPLATE = """
    template <typename T, int N = 4>
    [[kernel]] void fn(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) { y[i] = x[i] * T(N); }
"""


@pytest.mark.parametrize(
    "instance",
    [
        'template [[host_name("n")]] [[kernel]] void fn<half, 3>('
        "device const half*, device half* y [[buffer(1)]], uint);",
        'template [[host_name("n")]] [[kernel]] decltype(fn<half, 3>) fn<half, 3>;',
        'typedef decltype(fn<half, 3>) fn_t; template [[host_name("n")]] kernel fn_t fn<half, 3>;',
        """#define MAKE(name, type, n) template [[host_name(#name)]] kernel decltype(fn<type, n>) fn<type, n>;
        MAKE(n, half, 3)""",
    ],
)
def test_instances(run: Run, instance: str) -> None:
    result = run(TEMPLATE + instance)
    assert result.errors == []
    assert list(result.kernels) == ["n"]
    assert result.kernels["n"]["template"] == {"T": "half", "N": "3"}
    assert result.kernels["n"]["function"] == "fn"
    assert result.kernels["n"]["arguments"][0]["type"] == "device const half*"


def test_host_names_are_concatenated_and_defaults_filled_in(run: Run) -> None:
    make = '#define MAKE(t, s) template [[host_name("fn" "_" #s)]] kernel decltype(fn<t>) fn<t>;\n'
    result = run(TEMPLATE + make + "MAKE(float, f32)\nMAKE(bfloat, bf16)\n")
    assert {name: k["template"]["N"] for name, k in result.kernels.items()} == {"fn_f32": "4", "fn_bf16": "4"}


def test_default_that_names_an_earlier_parameter(run: Run) -> None:
    result = run("""
        template <typename T, typename U = T> kernel void k(device U* x) { *x = T(0); }
        template [[host_name("k_half")]] kernel decltype(k<half>) k<half>;
    """)
    assert result.kernels["k_half"]["template"] == {"T": "half", "U": "half"}
    assert "k<half, half>" in result.cpp


@pytest.mark.parametrize(
    ("head", "name"),
    [("kernel void k", "k"), ("[[kernel]] void k", "k"), ('[[host_name("other")]] kernel void k', "other")],
)
def test_plain_kernels(run: Run, head: str, name: str) -> None:
    result = run(PLAIN.replace("kernel void k", head))
    assert list(result.kernels) == [name]
    assert result.kernels[name]["line"] == 1
    assert result.kernels[name]["file"] == "a.metal"


def test_kernels_in_namespaces_and_headers(run: Run) -> None:
    result = run(
        """
        #include "h.h"
        template [[host_name("n")]] kernel decltype(a::b::fn<float>) a::b::fn<float>;
        """,
        h__h="""
        // in a header
        namespace a { namespace b {
        template <typename T> kernel void fn(device T* x) { *x = 0; }
        } }
        """,
    )
    kernel = result.kernels["n"]
    assert (kernel["file"], kernel["line"]) == ("h.h", 3)
    assert "a::b::fn_contract<float>" in result.cpp


def test_arguments(run: Run) -> None:
    result = run("""
        struct Params { uint m, n; float scale[2]; };
        kernel void k(
            device float* w [[buffer(2)]],
            const device half* r,
            constant Params& params,
            constant float* table [[buffer(0)]],
            device atomic_uint& count,
            const constant int64_t strides[3],
            threadgroup float* a,
            threadgroup half* b [[threadgroup(0)]],
            [[maybe_unused]] ushort3 tg [[threadgroup_position_in_grid]],
            ushort3 n [[threads_per_threadgroup]],
            uint lane [[thread_index_in_simdgroup]]) {}
    """)
    assert result.errors == []
    arguments = result.kernels["k"]["arguments"]
    assert [(a["name"], a["kind"], a["index"], a["access"]) for a in arguments] == [
        ("w", "buffer", 2, "write"),
        ("r", "buffer", 1, "read"),
        ("params", "value", 3, "read"),
        ("table", "buffer", 0, "read"),
        ("count", "buffer", 4, "write"),
        ("strides", "buffer", 5, "read"),
        ("a", "threadgroup", 1, "write"),
        ("b", "threadgroup", 0, "write"),
    ]
    assert arguments[2]["fields"] == [
        {"name": "m", "type": "uint"},
        {"name": "n", "type": "uint"},
        {"name": "scale", "type": "float[2]"},
    ]
    assert [p["attribute"] for p in result.kernels["k"]["positions"]] == [
        "threadgroup_position_in_grid",
        "threads_per_threadgroup",
        "thread_index_in_simdgroup",
    ]


def test_function_constants(run: Run) -> None:
    result = run("""
        constant bool flag [[function_constant(3)]];
        constant int width [[function_constant(1)]];
        constant int other [[function_constant(9)]];
        constant bool wide = flag && width > 4;
        constant int chosen = is_function_constant_defined(width) ? width : 8;
        inline float helper(float x) { return wide ? x : float(chosen); }
        kernel void k(device float* x [[buffer(0)]],
                      device const float* y [[buffer(1), function_constant(flag)]]) { *x = helper(*x); }
    """)
    kernel = result.kernels["k"]
    assert [(c["name"], c["index"], c["required"]) for c in kernel["constants"]] == [
        ("flag", 3, True),
        ("width", 1, False),
    ]
    assert [a["condition"] for a in kernel["arguments"]] == [None, "flag"]
    assert "static const PYTURBO_CONSTANT(bool, 0) flag{};" in result.cpp
    assert "operator bool() const { return flag && width > 4; }" in result.cpp
    assert "return bool(wide) ? x : float(int(chosen));" in result.cpp


def test_threadgroup_memory_is_measured_for_each_instance(run: Run) -> None:
    result = run("""
        #define EXTRA 2
        enum { kPad = 1, kNext };
        constant constexpr uint kRows = 4;
        template <typename T, int N>
        [[kernel, max_total_threads_per_threadgroup(N * 32)]] void k(device T* x) {
          constexpr int size = N * EXTRA;
          using Wide = vec<T, 4>;
          threadgroup T a[size][kRows + kPad], b[kNext];
          threadgroup atomic_uint counter;
          if (N > 1) {
            threadgroup Wide wide[2];
            wide[0] = 0;
          }
          x[0] = a[0][0] + b[0];
        }
        template [[host_name("f")]] kernel decltype(k<float, 3>) k<float, 3>;
        template [[host_name("h")]] kernel decltype(k<half, 2>) k<half, 2>;
    """)
    assert result.errors == []
    measured = {n: (k["threadgroup_bytes"], k["max_threads"]) for n, k in result.kernels.items()}
    assert measured == {"f": (6 * 5 * 4 + 8 + 4 + 32, 96), "h": (4 * 5 * 2 + 4 + 4 + 16, 64)}
    assert "typedef T pt_a[size][kRows + kPad]; PYTURBO_THREADGROUP(0, pt_a, a);" in result.cpp
    assert "typedef Wide pt_wide[2]; PYTURBO_THREADGROUP(3, pt_wide, wide);" in result.cpp


def test_harmless_attributes_and_pragmas(run: Run) -> None:
    result = run("""
        #define UNROLL _Pragma("clang loop unroll(full)")
        kernel void k(device float* x, [[maybe_unused]] uint i [[thread_position_in_grid]]) {
          UNROLL for (int j = 0; j < 4; ++j) x[j] = 0;
          #pragma unroll
          for (int j = 0; j < 4; ++j) x[j] = 0;
          [[unroll]] for (int j = 0; j < 4; ++j) x[j] = 0;
        }
    """)
    assert result.errors == []
    assert "unroll" not in result.cpp


def test_constant_memory_is_const_on_the_host(run: Run) -> None:
    result = run("""
        constant float table[2] = {1, 2};
        static constant constexpr int n = 2;
        float get(constant float* t, const constant float& u, constant const float* v) { return u; }
        kernel void k(device float* x) { *x = get(table, table[1], table); }
    """)
    assert "[[maybe_unused]] static const float table[2] = {1, 2};" in result.cpp
    assert "get(const float* t, const float& u, const float* v)" in " ".join(result.cpp.split())


def test_pointers_that_are_not_refused(run: Run) -> None:
    result = run("""
        template <typename T, void (*load)(device const T*, thread float&)>
        void apply(device const T* p, const device T*& q, thread float* thread* r, thread T& out) {
          auto f = [&](thread float& v) { v += 1; };
          auto* s = &out;
          const auto& u = *p;
          device const T* a = p, *b = p;
          float x = 2, y = x * x, z[2] = {x * y, y};
          bool both = x < y && y > x;
          if (both && x < y) f(x);
          if (both & true) y = x > 1 ? x * y : y * x;
          for (int i = 0; i * 2 & 7; ++i) { x * y; }
          switch (int(x)) { case 1: x = both ? x * y : *r[0]; }
          y = (x) * y + *(device const float*)p + (float)*p + static_cast<thread float*>(&x)[0];
        }
        struct S {
          device float* p;
          S(device float* p_) : p(p_) {}
          thread S& operator=(thread const S& other) { p = other.p; return *this; }
          float operator*(float v) const { return *p * v; }
        };
        kernel void k(device float* x) {}
    """)
    # `x * y;` alone declares a pointer in C++.
    assert [e.partition(" error: ")[2][:11] for e in result.errors] == ["pointer 'y'"]


def test_generated_text_keeps_the_lines_of_the_shader(run: Run) -> None:
    result = run("""
        // one
        // two
        kernel void k(device float* x [[buffer(0)]]) {
          x[0] = 1;
        }
    """)
    lines = result.cpp.splitlines()
    marker = next(i for i, line in enumerate(lines) if line.startswith("#line 3 ") and "a.metal" in line)
    assert lines[marker + 1 : marker + 3] == [
        "kernel void k(device float* x) {",
        "  PYTURBO_AT(0, 4), x[0] = 1;",
    ]


def test_statements_say_where_they_are(run: Run) -> None:
    """Functions that must be constant and those of one statement do not; a header has a number of its own."""
    result = run(
        """
        #include "more.h"
        constexpr uint triple(uint n) { uint m = 2 * n; return m + n; }
        kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
          if constexpr (sizeof(uint) == 4) i += triple(1);
          for (uint n : {1u, 2u})
            x[n] = 1;
          if (const uint m = i) {
            const auto f = [&](uint n) { return first(x) + float(n); };
            ++x[m], x[0] = f(m);
          }
          switch (i) { case 1: return; default: break; }
          return put(x);
        }
        """,
        more__h="""
        inline float first(device float* x) { return x[0]; }
        inline void put(device float* x) {
          float y = 1;
          x[1] = y;
        }
        """,
    )
    header, kernel = result.cpp.partition("constexpr uint triple")[::2]
    lines = [line.strip() for line in (header + kernel.partition("k_contract")[0]).splitlines()]
    assert "inline float first(device float* x) { return x[0]; }" in lines
    assert "PYTURBO_FRAME; PYTURBO_AT(0, 3); float y = 1;" in lines
    assert "PYTURBO_AT(0, 4), x[1] = y;" in lines
    assert kernel.startswith("(uint n) { uint m = 2 * n; return m + n; }")
    for line in (
        "if constexpr (sizeof(uint) == 4) PYTURBO_AT(1, 4), i += triple(1);",
        "PYTURBO_AT(1, 5); for (uint n : {1u, 2u})",
        "PYTURBO_AT(1, 6), x[n] = 1;",
        "if (const uint m = i) {",
        "PYTURBO_AT(1, 8); const auto f = [&](uint n) { return PYTURBO_AT(1, 8), first(x) + float(n); };",
        "PYTURBO_AT(1, 9), ++x[m], x[0] = f(m);",
        "switch (PYTURBO_AT(1, 11), i) { case 1: return; default: break; }",
        "return PYTURBO_AT(1, 12), put(x);",
    ):
        assert line in lines
    assert 'const char* const files[] = {"more.h", "a.metal"};' in result.cpp


def test_unchanged_outputs_are_left_alone(run: Run) -> None:
    out = run(PLAIN).out
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    assert {path.name for path in before} == {"a.cpp", "a.cu", "a.h", "a.metal", "m.json", "test_tables.cpp"}
    run(PLAIN)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == before
