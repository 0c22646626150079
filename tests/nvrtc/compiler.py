"""NVRTC of the wheel `nvidia-cuda-nvrtc`, through ctypes. It needs no GPU."""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import files
from pathlib import Path

from pyturbo._paths import PACKAGE

TEXTS = PACKAGE / "shaders"
# A driver keeps what NVRTC compiled on disk, without the log of it.
OPTIONS = ("-std=c++20", "-default-device", "-fmad=false", "--no-cache")

INCLUDE = "#include <metal_stdlib>\n"


@dataclass
class Compiled:
    accepted: bool
    log: str
    cubin: bytes
    ptx: str


@cache
def library() -> ctypes.CDLL:
    names = [path for path in files("nvidia-cuda-nvrtc") or () if path.name.startswith("libnvrtc.so")]
    return ctypes.CDLL(str(names[0].locate()))


def compile_text(text: str, name: str, options: Sequence[str]) -> Compiled:
    """Compile one CUDA text of the package, whose only header is that of the package.

    The header is parsed once for all texts with the same options. Definitions among the options follow it: it
    does not see them.
    """
    if INCLUDE not in text:
        return compile_plain(text, name, options)
    definitions = [option.removeprefix("-D").partition("=") for option in options if option.startswith("-D")]
    lines = [f"#define {macro} {value or 1}\n" for macro, _, value in definitions]
    others = [option for option in options if not option.startswith("-D")]
    header = parsed_header(*(option for option in others if not option.startswith("--ptxas-options")))
    return compile_plain(
        text.replace(INCLUDE, INCLUDE + "".join(lines), 1),
        name,
        [*others, f"--use-pch={header}", "--pch-messages=false"],
    )


@cache
def parsed_header(*options: str) -> Path:
    """Return the file of the parsed header, for this process. It goes with the folder of the run."""
    path = Path(os.environ["PYTURBO_CACHE"], f"{os.getpid()}{'-'.join(options)}.pch")
    result = compile_plain(INCLUDE, "header", [*options, f"--create-pch={path}"])
    assert result.accepted, result.log
    assert path.exists(), result.log
    return path


def compile_plain(text: str, name: str, options: Sequence[str]) -> Compiled:
    """Compile a text with the options as they are, as a device does."""
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    headers = (ctypes.c_char_p * 1)(Path(TEXTS, "metal_stdlib.cuh").read_bytes())
    names = (ctypes.c_char_p * 1)(b"metal_stdlib")
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 1, headers, names)
    assert created == 0
    try:
        flags = [option.encode() for option in (*OPTIONS, *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, cubin)
        nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetPTX(program, ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if status != 0:
        return Compiled(False, log.value.decode(), b"", "")
    return Compiled(True, log.value.decode(), cubin.raw, ptx.value.decode())


#: What NVRTC keeps for later compilations of a process once it was said.
UNOPTIMISED = "--Ofast-compile=max"


@cache
def unoptimising() -> subprocess.Popen[bytes]:
    """Return a process that compiles without optimisation, for as long as this one runs."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
    )
    atexit.register(process.communicate)
    return process


def compile_unoptimised(text: str, name: str, options: Sequence[str]) -> Compiled:
    """Compile with next to no optimisation, in a process for such compilations alone."""
    process = unoptimising()
    assert process.stdin
    assert process.stdout
    try:
        pickle.dump((text, name, [*options, UNOPTIMISED]), process.stdin)
        process.stdin.flush()
        return Compiled(*pickle.load(process.stdout))
    except (EOFError, BrokenPipeError):
        unoptimising.cache_clear()  # it has ended: the next compilation has a new one
        raise


def main() -> None:
    """Compile what comes from standard input until it ends."""
    with suppress(EOFError):
        while True:
            result = compile_text(*pickle.load(sys.stdin.buffer))
            pickle.dump((result.accepted, result.log, result.cubin, result.ptx), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
