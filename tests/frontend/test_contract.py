"""Contracts: the comment block above a kernel, and the shapes behind its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

KERNEL = """
    constant uint kThreads = 64;
    struct Params { uint rows; float eps; };

    // Not part of it.

    // y = x, row by row.
    // Layout: rows contiguous.
    // Dispatch: groups (ceil_div(dim, kThreads), params.rows),
    //   threads (kThreads)
    // Requires: dim > 0; params.rows % N == 0
    // Numerics: exact.
    template <typename T, int N>
    kernel void copy(
        device const T* x [[buffer(0)]],  // [params.rows, dim]
        device T* y [[buffer(1)]],        // [(params.rows - 1) * dim + dim] aligned 16 and prose
        constant uint& dim [[buffer(2)]],  // [not, a, shape]
        constant Params& params [[buffer(3)]],
        threadgroup T* row [[threadgroup(0)]],  // [N * sizeof(T)]
        uint tid [[thread_index_in_threadgroup]]) {}
    template [[host_name("copy_f32")]] kernel decltype(copy<float, 2>) copy<float, 2>;
"""


def test_manifest(run: Run) -> None:
    result = run(KERNEL)
    assert result.errors == []
    kernel = result.kernels["copy_f32"]
    assert kernel["comment"] == ["y = x, row by row.", "Layout: rows contiguous.", "Numerics: exact."]
    assert kernel["contract"] == {
        "dispatch": {"groups": ["ceil_div(dim, kThreads)", "params.rows"], "threads": ["kThreads"]},
        "requires": ["dim > 0", "params.rows % N == 0"],
        "work": None,
    }
    assert [a["shape"] for a in kernel["arguments"]] == [
        ["params.rows", "dim"],
        ["(params.rows - 1) * dim + dim"],
        None,
        None,
        ["N * sizeof(T)"],
    ]
    assert [a["alignment"] for a in kernel["arguments"]] == [None, 16, None, None, None]


def test_generated_checks(run: Run) -> None:
    cpp = run(KERNEL).cpp
    assert "template <typename T, int N> struct copy_contract {" in cpp
    assert "const auto dim = ::pyturbo::invoke::value<Function, 2>(pt_launch, 2);" in cpp
    assert 'if (!(::pyturbo::invoke::widen(params.rows) % N == 0)) return "params.rows % N == 0";' in cpp
    assert "case 4: return ::pyturbo::invoke::elements(N * sizeof(T));" in cpp


def test_a_kernel_without_contract(run: Run) -> None:
    result = run("kernel void k(device float* x) {}")
    assert result.kernels["k"]["contract"] == {"dispatch": None, "requires": [], "work": None}
    assert "nullptr, contract_0::violated" in result.cpp


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("dim > 0;", "dims > 0;", "10: error: copy: unknown name 'dims' in 'dims > 0'"),
        (
            "params.rows % N",
            "params.row % N",
            "10: error: copy: unknown name 'params.row' in",
        ),
        ("// [params.rows, dim]", "// [tokens, dim]", "14: error: copy: unknown name 'tokens' in 'tokens'"),
        ("ceil_div(", "ceil(", "8: error: copy: unknown name 'ceil' in 'ceil(dim, kThreads)'"),
        (
            "  threads (kThreads)",
            "threads (kThreads)",
            "8: error: Dispatch: expected 'groups (...), threads (...)', got 'groups (ceil_div(dim,",
        ),
        (
            "dim > 0;",
            "dim >;",
            "10: error: Requires: 'dim >' is not an expression: expected 'a value', got 'the end'",
        ),
        (
            "dim > 0;",
            "dim > 0, more;",
            "10: error: Requires: 'dim > 0, more' is not an expression: unexpected ','",
        ),
        ("// [params.rows, dim]", "// [dim", "14: error: x: shape without a closing bracket: '[dim'"),
        (
            "// [params.rows, dim]",
            "// []",
            "14: error: x: shape: '' is not an expression: expected 'a value', got",
        ),
        ("aligned 16", "aligned 12", "15: error: y: expected an alignment of 2, 4, 8 or 16, got 12"),
        ("threads (kThreads)", "threads (1, 1, 1, 1)", "8: error: Dispatch: expected at most 3 axes"),
        ("// Numerics:", "// Requires: N > 0 //", "11: error: copy: expected one Requires line, got another"),
    ],
)
def test_malformed(run: Run, old: str, new: str, expected: str) -> None:
    assert old in KERNEL
    errors = run(KERNEL.replace(old, new, 1)).errors
    assert len(errors) == 1
    assert errors[0].startswith(f"a.metal:{expected}")


WORK = """
    constant bool has_pairs [[function_constant(0)]];
    constant uint kEach = 3;

    // Work: products (dim * N * (has_pairs ? 2 : 1)), bytes (min(dim, rows) *
    //   (sizeof(T) + kEach))
    template <typename T, int N>
    kernel void copy(
        device const T* x [[buffer(0)]],
        device T* y [[buffer(1)]],
        constant uint& dim [[buffer(2)]],
        constant ulong& rows [[buffer(3)]],
        constant float& scale [[buffer(4)]],
        uint tid [[thread_index_in_threadgroup]]) { if (has_pairs) y[0] = x[0]; }
    template [[host_name("copy_f32")]] kernel decltype(copy<float, 2>) copy<float, 2>;
    template [[host_name("copy_f16")]] kernel decltype(copy<half, 4>) copy<half, 4>;
"""


def test_work(run: Run) -> None:
    result = run(WORK)
    assert result.errors == []
    work = {
        "products": "dim * N * (has_pairs ? 2 : 1)",
        "bytes": "min(dim, rows) * (sizeof(T) + kEach)",
    }
    assert result.kernels["copy_f16"]["contract"]["work"] == work
    assert result.kernels["copy_f16"]["comment"] == []
    cpp = (result.out / "test_tables.cpp").read_text()
    for line in (
        "const int64_t dim = ::pyturbo::read::value<uint32_t>(pt_launch, 2);",
        "const int64_t rows = ::pyturbo::read::value<uint64_t>(pt_launch, 3);",
        "const int64_t N = pt_info.parameters[1].value;",
        "const int64_t has_pairs = ::pyturbo::read::constant<bool>(pt_launch, 0);",
        "const int64_t kEach = 3;",
        "double(min(dim, rows) * (bytes_of(pt_info.parameters[0].type) + kEach))",
    ):
        assert line in cpp
    assert cpp.count('{"copy", work_of_copy}') == 1  # for both instances


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("dim * N", "dims * N", "4: error: copy: unknown name 'dims' in 'dims * N * (has_pairs ? 2 : 1)'"),
        ("dim * N", "scale * N", "4: error: copy: Work: expected integers, got 'scale'"),
        ("dim * N", "dim *", "4: error: Work: 'dim * * (has_pairs ? 2 : 1)' is not an expression"),
        ("products (", "steps (", "4: error: Work: expected 'products (...), bytes (...)' or one of them"),
        ("bytes (", "products (", "4: error: Work: expected 'products (...), bytes (...)' or one of them"),
    ],
)
def test_malformed_work(run: Run, old: str, new: str, expected: str) -> None:
    assert old in WORK
    errors = run(WORK.replace(old, new, 1)).errors
    assert errors
    assert errors[0].startswith(f"a.metal:{expected}")
