"""Writes the CUDA text of a shader: its C++, then one function for each instance of its kernels.

A compilation chooses instances (-DPT_INSTANCE_<host name>) and sets function constants (-DPT_C<slot>=<bits>).

A header folder/name.h may have a form for NVIDIA's GPUs, folder/cuda/name.h: it defines the same functions
and stands in place of the header's own text where the GPU has matrix units. It is CUDA, with its own
headers inside. It may define PT_RESIDENT, how many threadgroups a multiprocessor should hold: this limits
registers. It may define PT_FORM(...), for the template arguments of a kernel a type whose kSpan is how many
threadgroups of the contract along x are one, with kThreads threads and kBytes of dynamic shared memory, and
PT_PARTS, how many one of the contract becomes instead. Such a kernel has no arguments in threadgroup
memory, which would be the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from . import evaluate
from .arguments import Argument
from .emit import Entry, relative
from .inline import inline
from .parse import Instance
from .program import Program, ProgramScope, max_threads
from .rewrite import rewrite

_MAX_THREADS = 1024  # pyturbo::kMaxThreads
_INVOKE = "::pyturbo::invoke::"
_MARKER = re.compile(r'#line \d+ "(.*)"')
_CHAR = re.compile(r"(?<!signed )\bchar\b")
_INDENTATION = re.compile("^ +", re.MULTILINE)  # a sixteenth of all texts
_RESIDENT = "PT_RESIDENT"  # 0: any number
#: The threads of an instance, and what the device reads of its geometry.
_FORM = (
    "#ifdef PT_FORM",
    "#define PT_THREADS(pt_threads, ...) PT_FORM(__VA_ARGS__)::kThreads",
    "#ifndef PT_PARTS",
    "#define PT_PARTS 1",
    "#endif",
    '#define PT_GEOMETRY(pt_name, ...) extern "C" __constant__ const unsigned pt_name##_form[4] = '
    "{PT_FORM(__VA_ARGS__)::kSpan, PT_FORM(__VA_ARGS__)::kThreads, PT_FORM(__VA_ARGS__)::kBytes, PT_PARTS};",
    "#else",
    "#define PT_THREADS(pt_threads, ...) pt_threads",
    "#define PT_GEOMETRY(...)",
    "#endif",
)
_HAS_MATRIX_UNITS = "__CUDA_ARCH__ >= 800"  # for bf16


def text(program: Program, entries: Sequence[Entry], root: Path) -> str:
    unit = program.unit
    pragmas = {i: f'_Pragma("{t.pragma}") ' for i, t in enumerate(unit.tokens) if t.pragma}
    lines = [
        f"// Generated from {relative(unit.path, root)} by shaders/frontend.",
        "#include <metal_stdlib>",
        *_constants(program),
        "namespace msl::shader {",
        "namespace {",
        *_with_own_forms(_signed(rewrite(program, pragmas, lambda file: relative(file, root))), root),
        "}",
        "}",
        f"#ifndef {_RESIDENT}\n#define {_RESIDENT} 0\n#endif",
        *_FORM,
        "namespace msl {",
        "using namespace shader;",
    ]
    for entry in entries:
        lines += _signed(_kernel(program, entry))
    return _INDENTATION.sub("", "\n".join([*lines, "}", ""]))


def _signed(lines: Iterable[str]) -> Iterator[str]:
    """Say that char has a sign, which NVRTC's own has on some hosts only."""
    return (line if _MARKER.fullmatch(line) else _CHAR.sub("signed char", line) for line in lines)


def _with_own_forms(lines: Iterable[str], root: Path) -> Iterator[str]:
    """Choose, where a header has a form of its own, between both by the GPU."""
    header = ""  # whose text this is, where there are two
    for line in lines:
        if marker := _MARKER.fullmatch(line):
            path = Path(marker[1])
            form = path.parent / "cuda" / path.name
            if header and header != marker[1]:
                yield "#endif"
                header = ""
            if not header and (root / form).is_file():
                header = marker[1]
                yield f"#if {_HAS_MATRIX_UNITS}"
                yield inline(root / form, root)
                yield "#else"
        yield line
    if header:
        yield "#endif"


def _constants(program: Program) -> Iterator[str]:
    for slot in sorted(c.slot for c in program.constants.values() if c.slot >= 0):
        yield f"#ifdef PT_C{slot}\n#define PT_D{slot} true\n#else"
        yield f"#define PT_C{slot} 0\n#define PT_D{slot} false\n#endif"


def _kernel(program: Program, entry: Entry) -> Iterator[str]:
    """Write a macro that defines an instance from its name, threads and template arguments, and its uses."""
    kernel = entry.kernel
    arguments = [a for a in entry.arguments if not a.is_position]
    shared = [a for a in arguments if a.kind == "threadgroup"]
    parameters = [_parameter(a) for a in arguments if a not in shared]
    parameters += [f"unsigned {a.name}" for a in shared]
    if shared:
        yield f"#ifdef PT_FORM\n#error {kernel.name}: expected no threadgroup argument beside PT_FORM\n#endif"
    names = [p.name for p in kernel.template]
    function = "::".join(["shader", *kernel.item.namespace, kernel.name])
    function += f"<{', '.join(names)}>" if names else ""
    yield (
        f"#define PT_KERNEL({', '.join(['pt_name', 'pt_threads', *names])}) "
        f"PT_GEOMETRY({', '.join(['pt_name', *names])}) "
        f'extern "C" __global__ void '
        f"__launch_bounds__(PT_THREADS({', '.join(['pt_threads', *names])}), {_RESIDENT}) "
        f"pt_name({', '.join(parameters)}) "
        f"{{ {_INVOKE}begin(); {function}({', '.join(map(_value, entry.arguments))}); {_INVOKE}end(); }}"
    )
    for instance in kernel.instances:
        given = [instance.host_name, str(_threads(program, entry, instance)), *instance.arguments]
        yield f"#ifdef PT_INSTANCE_{instance.host_name}\nPT_KERNEL({', '.join(given)})\n#endif"
    yield "#undef PT_KERNEL"


def _parameter(argument: Argument) -> str:
    if argument.kind == "value":
        return f"const __grid_constant__ {argument.element} {argument.name}"
    return f"{'' if argument.writable else 'const '}{argument.element}* {argument.name}"


def _value(argument: Argument) -> str:
    if argument.is_position:
        return f"{_INVOKE}{argument.kind}<{argument.element}>()"
    if argument.kind == "threadgroup":
        return f"({argument.element}*)({_INVOKE}shared_memory + {argument.name})"
    return f"*{argument.name}" if argument.kind == "buffer" and argument.type.endswith("&") else argument.name


def _threads(program: Program, entry: Entry, instance: Instance) -> int:
    """Return the threads of a threadgroup where the contract fixes them, else the most that are allowed."""
    bound, threads = entry.kernel.bindings(instance), 1
    scope = ProgramScope(program, bound)
    try:
        for axis in entry.contract.threads:
            threads *= evaluate.evaluate(axis.node, scope)
    except evaluate.UnknownError:
        threads = 0
    fixed = threads if entry.contract.threads else 0
    return fixed or max_threads(program, entry.kernel, bound) or _MAX_THREADS
