"""Every instance of every shader as CUDA: NVRTC compiles the texts of the installed package, without a GPU.

Where a shader has many, all are compiled to PTX, with next to no optimisation, which would take minutes, and
some for a GPU. Kernels of a decode step must keep thread arrays and values in registers: some of them are
optimised. What kernels compute is not seen here.
"""

from __future__ import annotations

import re
import struct
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import pyturbo
from frontend.__main__ import main
from frontend.tokens import words
from gguf_blocks import both_forms
from gguf_models import BLOCK_MODELS, metadata
from nvrtc.compiler import TEXTS, Compiled, compile_plain, compile_text, compile_unoptimised
from pyturbo.checkpoint.gguf_writer import write_gguf
from pyturbo.errors import ArgumentError
from pyturbo.model import load
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_hf, write_mlx

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="NVRTC is for Linux"),
]


#: Shaders of the kernels that a program for one token launches, in any model and format.
DECODE = words(
    """
    activation_sigmoid_gate activation_swiglu activation_swiglu_clamped affine_affine_embed
    affine_affine_experts_matvec affine_affine_experts_swiglu affine_affine_matvec
    affine_affine_project affine_affine_swiglu attention_attention_merge
    attention_attention_partials attention_kv_append delta_conv1d delta_decay_beta
    delta_delta_net delta_delta_step elementwise_add_bias
    elementwise_split_q_gate fp_fp_embed fp_fp_experts_matvec fp_fp_experts_swiglu fp_fp_matvec
    fp_fp_project fp_fp_swiglu gguf_gguf_embed gguf_gguf_experts_matvec gguf_gguf_experts_swiglu
    gguf_gguf_matvec gguf_gguf_project gguf_gguf_swiglu
    linear_dense_experts_matvec linear_dense_matvec linear_dense_project mla_mla_affine_project
    mla_mla_append mla_mla_dense_project mla_mla_fp_project mla_mla_gguf_project mla_mla_partials
    mla_mla_split mla_mla_turbo_partials moe_add_expert_bias moe_gather_rows moe_moe_combine
    moe_moe_combine_norm moe_route moe_route_grouped norm_gated_rms_norm norm_head_rms_norm
    norm_qk_norm norm_rms_norm rope_rope rope_rope_append sampling_choose_token sampling_top_logits_merge
    sampling_top_logits_partials turboquant_hadamard turboquant_turbo_encode
    turboquant_turbo_merge turboquant_turbo_partials
    """
)

OPTIMISED = 8  # one of as many instances of such a shader is
FEW = 3  # as many instances of a shader are compiled for a GPU at once

#: One shader each with conversions, simdgroup functions and simdgroup matrices, for other architectures.
SAMPLE = ("norm_rms_norm", "moe_route", "linear_dense_matvec")

#: Shaders whose forms for matrix units depend on the memory of a threadgroup, or are others on Hopper.
FORMS = words(
    """
    affine_affine_few_matmul affine_affine_grouped_matmul affine_affine_swiglu_matmul attention_attention
    delta_delta_net_chunkwise fp_fp_matmul gguf_gguf_grouped_matmul linear_dense_few_matmul
    linear_dense_grouped_matmul linear_dense_matmul turboquant_turbo_prefill
    """
)

#: What function constants are while a shader is compiled, by type.
VALUES = {"bool": 1, "uint": 4}

PROPERTIES = re.compile(
    r"Function properties for (\w+)\n"
    r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


def stem(file: str) -> str:
    return file.removesuffix(".metal").replace("/", "_")


SHADERS = sorted({stem(kernel["file"]) for kernel in pyturbo.kernels().values()})


def instances(shader: str) -> list[str]:
    return [kernel["name"] for kernel in pyturbo.kernels().values() if stem(kernel["file"]) == shader]


def compiled(shader: str, names: list[str], *options: str, optimised: bool = True) -> Compiled:
    text = (TEXTS / f"{shader}.cu").read_text()
    chosen = [f"-DPT_INSTANCE_{name}" for name in names]
    constants = re.findall(r"PYTURBO_CONSTANT\((\w+), (\d+)\)", text)
    values = [f"-DPT_C{slot}={VALUES[type_]}" for type_, slot in constants]
    compile_ = compile_text if optimised else compile_unoptimised
    return compile_(text, f"{shader}.cu", [*options, *chosen, *values])


def in_memory(log: str) -> set[str]:
    """Return the kernels that have a stack frame or spill registers, by what ptxas says of each."""
    return {name for name, *sizes in PROPERTIES.findall(log) if any(map(int, sizes))}


@pytest.mark.parametrize("shader", SHADERS)
def test_every_instance_compiles(shader: str) -> None:
    names, optimised = instances(shader), shader in DECODE
    assert names
    some = names
    if len(names) > FEW:
        every = compiled(shader, names, "-arch=compute_90a", optimised=False)
        assert every.accepted, every.log
        assert all(f".entry {name}(" in every.ptx for name in names)
        some = names[::-OPTIMISED] if optimised else names[-1:]
    result = compiled(shader, some, "-arch=sm_90a", "--ptxas-options=-v", optimised=optimised)
    assert result.accepted, result.log
    assert all(f"\0.text.{name}\0".encode() in result.cubin for name in some)
    if optimised:
        assert {name for name, *_ in PROPERTIES.findall(result.log)} >= set(some)  # and subroutines
        assert not in_memory(result.log) & set(some)


@pytest.mark.parametrize("architecture", [75, 80, 86, 89, 100, 120])
@pytest.mark.parametrize("shader", SAMPLE)
def test_other_architectures(shader: str, architecture: int) -> None:
    result = compiled(shader, instances(shader)[-1:], f"-arch=sm_{architecture}")
    assert result.accepted, result.log


# Without matrix units; with 163 KiB for a threadgroup; with 99; with 227, but without what only Hopper has.
@pytest.mark.parametrize("architecture", [75, 80, 86, 100])
@pytest.mark.parametrize("shader", sorted(FORMS))
def test_forms_for_gpus_with_less(shader: str, architecture: int) -> None:
    by_memory = [name for name in instances(shader) if "_d256" in name]  # takes what memory there is
    result = compiled(
        shader, (by_memory or instances(shader))[-1:], f"-arch=compute_{architecture}", optimised=False
    )
    assert result.accepted, result.log


@pytest.mark.parametrize("architecture", ["80", "90a"])
@pytest.mark.parametrize("shader", ["affine_affine_matmul", "gguf_gguf_grouped_matmul"])
def test_fast_precision_makes_other_kernels(shader: str, architecture: str) -> None:
    names, option = instances(shader)[-1:], f"-arch=sm_{architecture}"
    default, fast = (compiled(shader, names, option, *more, optimised=False) for more in ((), ("-DPT_FAST",)))
    assert default.accepted, default.log
    assert fast.accepted, fast.log
    assert len(fast.cubin) < len(default.cubin)


#: Functions that no shader uses, with variables of the types that their names are the first letters of.
UNUSED = (
    *("acosh(f)", "exp10(f)", "tanh(h)", "fmod(f, 2.0f)", "powr(f, 3.0f)", "ldexp(f, i)", "frexp(f, i)"),
    *("modf(f, f)", "sincos(v, v).x", "signbit(f)", "isnormal(h)", "fract(v).x", "smoothstep(0.0f, 1.0f, f)"),
    *("mulhi(i, i)", "mulhi(l, l)", "mulhi(long(l), 3l)", "popcount(l)", "clz(u)", "ctz(i)", "rotate(u, 3u)"),
    *("reverse_bits(u)", "extract_bits(i, 2, 5)", "insert_bits(u, 1u, 2, 5)", "mad24(i, i, i)"),
    *("absdiff(i, 3)", "dot(v, v)", "length(v)", "normalize(v).x", "cross(v, v).x", "as_type<uint>(f)"),
    *("simd_product(f)", "simd_min(v).x", "simd_xor(u)", "simd_any(u)", "simd_broadcast_first(h)"),
    *("simd_prefix_exclusive_sum(f)", "simd_prefix_inclusive_product(u)", "simd_is_first()"),
    *("simd_shuffle_and_fill_up(f, 0.0f, 2)", "simd_shuffle_rotate_down(v, 1).x", "quad_sum(f)"),
    *(
        "quad_shuffle_xor(u, 1)",
        "ulong(simd_active_threads_mask())",
        "NAN",
        "FLT_MAX",
        "UINT_MAX",
        "HALF_MAX",
    ),
    "atomic_fetch_add_explicit((device atomic_uint*)out, 1u, memory_order_relaxed)",
    "atomic_fetch_max_explicit((device atomic_int*)out, 1, memory_order_relaxed)",
    "atomic_fetch_sub_explicit((device atomic_float*)out, 1.0f, memory_order_relaxed)",
    "atomic_exchange_explicit((device atomic_ulong*)out, l, memory_order_relaxed)",
)


@pytest.mark.parametrize("architecture", [75, 90])
def test_the_rest_of_the_library(architecture: int) -> None:
    sums = "\n".join(f"out[{n}] = float({expression});" for n, expression in enumerate(UNUSED))
    text = f"""
        #include <metal_stdlib>
        namespace msl {{
        using namespace metal;
        extern "C" __global__ void rest(float* out, float f, int i, uint u, ulong l) {{
          half h = f;
          float3 v = f;
          {sums}
        }}
        }}"""
    result = compile_text(text, "rest.cu", [f"-arch=sm_{architecture}"])
    assert result.accepted, result.log


def test_shaders_for_tests(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent / "shaders"
    shaders = [str(path) for path in root.glob("*.metal")]
    folders = ["--root", str(root), "--out", str(tmp_path), "--sources", str(tmp_path)]
    assert main(["--library", "test", *folders, "--manifest", str(tmp_path / "manifest.json"), *shaders]) == 0
    for shader in shaders:
        text = (tmp_path / Path(shader).name).with_suffix(".cu").read_text()
        names = re.findall(r"#ifdef (PT_INSTANCE_\w+)", text)
        result = compile_text(text, shader, ["-arch=sm_90", *(f"-D{name}" for name in names)])
        assert names
        assert result.accepted, result.log


@pytest.mark.parametrize(
    ("shader", "name", "copied"),
    [
        ("affine_affine_matmul", "affine_matmul_b4_f32", True),
        ("affine_affine_swiglu_matmul", "affine_swiglu_matmul_b4_bf16", True),
        ("affine_affine_matmul", "affine_matmul_b8_bf16", False),
        ("fp_fp_matmul", "fp_matmul_mxfp4", True),
        ("fp_fp_matmul", "fp_matmul_mxfp8", False),
        ("fp_fp_swiglu_matmul", "fp_swiglu_matmul_nvfp4", False),
        ("gguf_gguf_matmul", "gguf_matmul_q4_k", False),
        ("linear_dense_matmul", "dense_matmul_f16", False),
    ],
)
def test_a_form_takes_the_shared_memory_of_its_format(shader: str, name: str, copied: bool) -> None:
    """On Hopper all have at least three stages of 64 columns of 64 tokens; copies of codes take as much."""
    result = compiled(shader, [name], "-arch=compute_90a", optimised=False)
    assert result.accepted, result.log
    (values,) = re.findall(rf"\b{name}_form\[\d+\] = \{{(.*?)\}}", result.ptx)
    span, threads, nbytes, parts = struct.unpack("<4I", bytes(map(int, values.split(","))).ljust(16, b"\0"))
    assert (span, threads, parts) == (1, 512, 1)
    stages = 3 * 2 * 64 * 64 * 2  # two terms of bf16
    assert stages < nbytes <= 227 * 1024
    assert (nbytes > 128 * 1024) == copied


def test_only_the_chosen_instance_is_compiled() -> None:
    text = (TEXTS / "norm_rms_norm.cu").read_text()
    result = compile_plain(text, "norm_rms_norm.cu", ["-arch=sm_90", "-DPT_INSTANCE_rms_norm_f16"])
    assert result.accepted, result.log
    assert b"rms_norm_f16" in result.cubin
    assert b"rms_norm_f32" not in result.cubin


def test_function_constants_are_part_of_the_code() -> None:
    text = (TEXTS / "norm_rms_norm.cu").read_text()
    options = ("-arch=sm_90", "-DPT_INSTANCE_rms_norm_f32")
    without = compile_text(text, "a.cu", options)
    off, on = (compile_text(text, "a.cu", [*options, f"-DPT_C0={value}"]) for value in (0, 1))
    assert without.cubin == off.cubin
    assert off.cubin != on.cubin


def test_an_array_in_memory_is_found() -> None:
    text = """
        extern "C" __global__ void picks(int* out, int chosen) {
          int values[64];
          for (int i = 0; i < 64; ++i) values[i] = out[i];
          for (int i = 0; i < 64; ++i) out[i] = values[(i * chosen) & 63];
        }"""
    result = compile_text(text, "a.cu", ["-arch=sm_90", "--ptxas-options=-v"])
    assert in_memory(result.log) == {"picks"}


def test_messages_name_the_line_of_the_shader() -> None:
    text = (TEXTS / "norm_rms_norm.cu").read_text().replace("v[i] * inverse", "v[i] * reverse")
    result = compile_text(text, "a.cu", ["-arch=sm_90", "-DPT_INSTANCE_rms_norm_f32"])
    assert not result.accepted
    assert re.search(r"^norm/rms_norm.metal\(\d+\): error: identifier \"reverse\"", result.log, re.MULTILINE)


def recorded(path: Path, kv: str, device: str = "cpu") -> set[str]:
    """Return the shaders of the kernels that read one token."""
    files = {name: stem(kernel["file"]) for name, kernel in pyturbo.kernels().items()}
    with load(path, device, kv=kv) as model, model.runner.program(512, 1, "last") as (_, graph):
        return {files[launch.kernel] for launch in graph.program.listing()}


def test_the_shaders_of_a_decode_step(tmp_path: Path) -> None:
    """A GPU joins launches where it can, and finds the largest logits; the processor does neither."""
    found: set[str] = set()
    for name, model in (MODELS | FP_MODELS).items():
        for write in (write_hf, write_mlx) if name in MODELS else (write_mlx,):
            write(model, path := tmp_path / name / write.__name__)
            found |= recorded(path, "f16") | recorded(path, "f16", "cuda")
        with suppress(ArgumentError):  # not every shape can be compressed
            found |= recorded(path, "turbo4") | recorded(path, "turbo4", "cuda")
    for name, one in BLOCK_MODELS.items():
        (path,) = write_gguf(tmp_path / f"{name}.gguf", metadata(one), both_forms(one, ("Q4_K",))[0])
        found |= recorded(path, "f16") | recorded(path, "f16", "cuda")
    assert sorted(found) == sorted(DECODE)
