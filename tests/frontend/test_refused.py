"""What Metal would refuse is refused, at its own file and line.

Not tested: what only Apple's compiler can see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

SPACE = "without an address space: expected device, constant, thread or threadgroup"


def body(line: str) -> str:
    return "kernel void k(device float* x [[buffer(0)]]) {\n" + line + "\n}\n"


def head(parameters: str) -> str:
    return "kernel void k(\n" + parameters + ") {}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float f(float* p) { return *p; }", [f"1: error: pointer 'p' {SPACE}"]),
        (
            "template <typename T> T f(int a, const T& p) { return p; }",
            [f"1: error: reference 'p' {SPACE}"],
        ),
        ("void f(device float** p);", [f"1: error: pointer 'p' {SPACE}"]),
        ("void f(float*, thread int&);", [f"1: error: pointer {SPACE}"]),
        ("float* f();", [f"1: error: pointer 'f' {SPACE}"]),
        ("struct S {\n  float* p;\n};", [f"2: error: pointer 'p' {SPACE}"]),
        ("struct S {\n  S& operator=(thread const S& s);\n};", [f"2: error: reference 'operator' {SPACE}"]),
        (body("float* p = x;"), [f"2: error: pointer 'p' {SPACE}"]),
        (body("float a = 0, &b = a;"), [f"2: error: reference 'b' {SPACE}"]),
        (
            body("if (x) { const vec<float, 4>& v = *(device float4*)x; }"),
            [f"2: error: reference 'v' {SPACE}"],
        ),
        (body("for (float* p = x; p < x; ++p) {}"), [f"2: error: pointer 'p' {SPACE}"]),
        (body("x[0] = *(float*)x;"), [f"2: error: pointer {SPACE}"]),
        (body("x[0] = *reinterpret_cast<const float*>(x);"), [f"2: error: pointer {SPACE}"]),
        (body("auto f = [&](float& v) { v = 1; };"), [f"2: error: reference 'v' {SPACE}"]),
        ("using P = float*;", [f"1: error: pointer {SPACE}"]),
        ("typedef float* P;", [f"1: error: pointer 'P' {SPACE}"]),
    ],
)
def test_pointers(run: Run, text: str, expected: list[str]) -> None:
    result = run(text)
    assert result.status == 1
    assert result.errors == [f"a.metal:{error}" for error in expected]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            "device float* a [[buffer(1)]],\ndevice float* b [[buffer(1)]]",
            "3: error: b: buffer index 1 is taken by a",
        ),
        (
            "threadgroup float* a [[threadgroup(0)]],\nthreadgroup float* b [[threadgroup(0)]]",
            "3: error: b: threadgroup index 0 is taken by a",
        ),
        ("device float* a [[buffer(31)]]", "2: error: a: expected a buffer index from 0 to 30, got '31'"),
        (
            ",\n".join(f"device float* a{i}" for i in range(32)),
            "33: error: k: expected at most 31 buffer arguments, got 32",
        ),
        (
            "uint2 a [[threadgroup_position_in_grid]],\nuint b [[thread_position_in_grid]]",
            "3: error: b: 'uint' differs in width from a, 'uint2'",
        ),
        (
            "uint2 a [[thread_index_in_simdgroup]]",
            "2: error: a: thread_index_in_simdgroup expected uint or ushort, got 'uint2'",
        ),
        (
            "int a [[thread_position_in_grid]]",
            "2: error: a: thread_position_in_grid expected uint or ushort, or a vector of 2 or 3 of them,"
            " got 'int'",
        ),
        ("device float* a [[bufer(0)]]", "2: error: a: unknown attribute 'bufer'"),
        (
            "uint a",
            "2: error: a: expected an attribute, or a pointer to device, constant or threadgroup memory,"
            " got 'uint'",
        ),
        (
            "threadgroup float* a [[buffer(0)]]",
            "2: error: a: expected buffer memory, got 'threadgroup float*'",
        ),
        (
            "device float* a [[buffer(0), function_constant(none)]]",
            "2: error: a: expected a bool function constant, got 'none'",
        ),
    ],
)
def test_parameters(run: Run, parameters: str, expected: str) -> None:
    assert run(head(parameters)).errors == [f"a.metal:{expected}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "struct S { float a; };\nkernel float k(device float* x) { return *x; }",
            "2: error: k: expected a kernel that returns void",
        ),
        ("[[early_fragment_tests]]\nkernel void k(device float* x) {}", "1: error: k: unknown attribute"),
        (
            "template <int N> kernel void k(device float* x) {}\n"
            'template [[host_name("a")]] kernel decltype(j<1>) j<1>;',
            "2: error: instantiation of unknown kernel template j",
        ),
        (
            "template <int N> kernel void k(device float* x) {}\n"
            'template [[host_name("a")]] kernel decltype(k<1, 2>) k<1, 2>;',
            "2: error: k: expected 1 template arguments, got 2",
        ),
        (
            "void f() {\n  threadgroup float x[4];\n}",
            "2: error: threadgroup variable declared in f, which is not a",
        ),
        ("threadgroup float x[4];", "1: error: threadgroup variable declared in program or class scope"),
        (
            body("threadgroup float a[2] = {0};"),
            "2: error: threadgroup variable 'a' cannot have an initialiser",
        ),
        (
            body("threadgroup float a[64][64];\nthreadgroup half b[8193];"),
            "2: error: k: expected at most 32768 bytes of threadgroup memory, got 32770",
        ),
        (
            "constant bool f [[function_constant(65536)]];",
            "1: error: function_constant: expected an index from 0 to 65535",
        ),
        ("kernel void k(device float* x) {", "1: error: unmatched '{'"),
    ],
)
def test_kernels(run: Run, text: str, expected: str) -> None:
    errors = run(text).errors
    assert len(errors) == 1
    assert errors[0].startswith(f"a.metal:{expected}")


def test_threadgroup_memory_of_one_instance(run: Run) -> None:
    result = run("""
        template <typename T, int N> kernel void k(device T* x) {
          constexpr int n = N * N;
          threadgroup T tile[n];
        }
        template [[host_name("fits")]] kernel decltype(k<half, 128>) k<half, 128>;
        template [[host_name("large")]] kernel decltype(k<float, 128>) k<float, 128>;
    """)
    assert result.errors == [
        "a.metal:3: error: large: expected at most 32768 bytes of threadgroup memory, got 65536"
    ]


def test_host_names_are_unique_in_the_library(run: Run) -> None:
    kernel = '[[host_name("k")]] kernel void {}(device float* x) {{}}\n'
    errors = run(kernel.format("first"), b__metal="\n// second\n" + kernel.format("second")).errors
    assert errors == ["b.metal:2: error: host name k is taken by a.metal:1"]


def test_kernel_functions_are_unique_in_the_library(run: Run) -> None:
    """A CPU body is found by the function's name: it would read the arguments of the wrong kernel."""
    kernel = """
        template <typename T>
        kernel void twice(device T* x [[buffer({})]], device T* y [[buffer({})]]) {{}}
        template [[host_name("{}")]] kernel decltype(twice<float>) twice<float>;
    """
    errors = run(kernel.format(0, 1, "first"), b__metal=kernel.format(1, 0, "second")).errors
    assert errors == ["b.metal:1: error: kernel function twice is defined in a.metal:1 too"]


def test_all_errors_of_a_run_are_reported_with_their_files(run: Run) -> None:
    result = run(
        """
        #include "h.h"
        kernel void k(device float* x [[buffr(0)]]) { float* p = x; }
        """,
        h__h="inline float f(float* p) { return *p; }\n",
        b__metal='#include "h.h"\nkernel void j(uint i) {}\n',
    )
    assert result.status == 1
    assert sorted(error.partition(" error:")[0] for error in result.errors) == [
        "a.metal:2:",
        "a.metal:2:",
        "b.metal:2:",
        "h.h:1:",
    ]


def test_the_preprocessor_s_own_errors_are_reported(run: Run) -> None:
    result = run('#include "missing.h"\n')
    assert result.status == 1
    assert "a.metal:1:10: fatal error: missing.h" in result.errors[0]
