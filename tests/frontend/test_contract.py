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
    assert result.kernels["k"]["contract"] == {"dispatch": None, "requires": []}
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
