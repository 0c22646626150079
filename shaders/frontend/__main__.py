"""Command line of the front end; see --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as `python shaders/frontend`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from frontend import check, contract, cuda, emit, host, work
from frontend.arguments import Reader
from frontend.inline import inline
from frontend.manifest import manifest
from frontend.preprocess import PreprocessorError, preprocess
from frontend.program import Program
from frontend.tokens import Errors, tokenise
from frontend.unit import Unit


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="frontend", description=__doc__)
    parser.add_argument("--compiler", default="c++", help="C++ compiler that preprocesses the shaders")
    parser.add_argument("--library", required=True, help="name of the function that lists the tables")
    parser.add_argument("--root", type=Path, required=True, help="folder that file names are relative to")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the C++ files; headers for host code in arguments/"
    )
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument(
        "--sources", type=Path, help="folder of the texts that GPUs compile: .metal with headers inside, .cu"
    )
    parser.add_argument("--msl", type=Path, help="folder of <metal_stdlib>: --sources gets it for CUDA")
    parser.add_argument("-I", dest="includes", type=Path, action="append", default=[], help="header folder")
    parser.add_argument("--list-outputs", action="store_true", help="print the files that would be written")
    parser.add_argument("shaders", type=Path, nargs="*")
    return parser.parse_args(arguments)


def stem(shader: Path, root: Path) -> str:
    path = Path(emit.relative(str(shader), root)).with_suffix("")
    return "_".join(part.replace("-", "_") for part in path.parts if part != path.anchor)


def read_entries(program: Program) -> list[emit.Entry]:
    entries = []
    for kernel in program.kernels.values():
        arguments = Reader(program, kernel).read()
        reached = program.closure(kernel)
        constants = [c for c in program.constants.values() if c.index >= 0 and c.name in reached]
        entries.append(emit.Entry(kernel, arguments, contract.read(program, kernel, arguments), constants))
    return entries


def _write(path: Path, text: str) -> None:
    """Write the text, but leave a file alone that already holds it, so that nothing is rebuilt."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    stems = [stem(shader, options.root) for shader in options.shaders]
    outputs = [options.out / f"{name}.cpp" for name in [*stems, f"{options.library}_tables"]]
    headers = [
        options.out / "arguments" / Path(emit.relative(str(shader), options.root)).with_suffix(".h")
        for shader in options.shaders
    ]
    metal = [options.sources / f"{name}.metal" for name in stems] if options.sources else []
    texts = [path.with_suffix(".cu") for path in metal]
    library = [options.sources / "metal_stdlib.cuh"] if options.sources and options.msl else []
    if options.list_outputs:
        print(*outputs, *headers, *metal, *texts, *library, options.manifest, sep="\n")
        return 0
    errors, shaders = Errors(), []
    for shader in options.shaders:
        try:
            lines = preprocess(options.compiler, shader, [options.root, *options.includes])
        except PreprocessorError as error:
            errors.found.append(str(error))
            continue
        program = Program(Unit(str(shader), tokenise(lines), errors))
        check.check(program)
        shaders.append((program, read_entries(program)))
    check.check_names(program for program, _ in shaders)
    works = work.functions(shaders)
    if len(set(stems)) < len(stems):
        errors.found.append(f"{options.root}: error: two shaders would be written to the same file: {stems}")
    if errors.found:
        print(*errors.found, sep="\n", file=sys.stderr)
        return 1
    for path, name, (program, entries) in zip(outputs, stems, shaders):
        _write(path, emit.translation_unit(program, entries, name, options.root))
    for path, (program, entries) in zip(headers, shaders):
        _write(path, host.header(program, entries, options.library, options.root))
    for path, shader in zip(metal, options.shaders):
        _write(path, inline(shader, options.root, options.includes))
    for path, (program, entries) in zip(texts, shaders):
        _write(path, cuda.text(program, entries, options.root))
    for path in library:
        _write(path, inline(options.msl / "cuda" / "invoke.h", options.msl, [options.msl / "cuda"]))
    _write(outputs[-1], emit.tables(options.library, stems, works))
    _write(options.manifest, manifest(shaders, options.root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
