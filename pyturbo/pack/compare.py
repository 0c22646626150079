"""Comparison of a packed checkpoint with the checkpoint it was made of, value for value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pyturbo._arrays import Array
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.manifest import NAME, Manifest, PackedLayer
from pyturbo.convert.parallel import in_parallel
from pyturbo.files.write import as_bytes
from pyturbo.pack.checksums import workers
from pyturbo.pack.findings import Finding
from pyturbo.pack.plan import LayerJob, Plan
from pyturbo.pack.write import resident_header

Advance = Callable[[int], None]


def compare(folder: Path, manifest: Manifest, plan: Plan, advance: Advance) -> list[Finding]:
    """Make everything from the source once more, and compare it with the files."""
    jobs = {job.layer.path: job for job in plan.layers}
    found = []
    if jobs.keys() != {layer.path for layer in manifest.layers}:
        return [Finding(NAME, "layers: expected those of the source, got others")]
    found += _compare_resident(folder, manifest, plan, advance)
    for layer in manifest.layers:
        if replace(layer, checksums=()) != jobs[layer.path].layer:
            found.append(Finding(NAME, "expected the layout of the source, got another one", layer.path))
        else:
            found += _compare_layer(folder, layer, jobs[layer.path], advance)
    return found


def _compare_resident(folder: Path, manifest: Manifest, plan: Plan, advance: Advance) -> list[Finding]:
    name, found = manifest.resident.file, list[Finding]()
    header, offsets, size = resident_header(plan)
    file = TensorFile(folder / name)
    try:
        if file.size != size or file.bytes(0, len(header)) != header:
            return [Finding(name, "expected the tensors of the source, got others")]
        advance(size - sum(output.nbytes for output in plan.outputs))
        for job in plan.residents:
            places = {kind: offsets[output.name] for kind, output in job.outputs.items()}
            wrong = set()
            for block in job.blocks():
                for kind, array in block.items():
                    data = as_bytes(array)
                    if file.bytes(places[kind], len(data)) != data:
                        wrong.add(job.outputs[kind].name)
                    places[kind] += len(data)
                    advance(len(data))
            found += [Finding(name, "differs from the source", tensor=tensor) for tensor in sorted(wrong)]
    finally:
        file.close()
    return found


def _compare_layer(folder: Path, layer: PackedLayer, job: LayerJob, advance: Advance) -> list[Finding]:
    file, found = TensorFile(folder / layer.file), list[Finding]()

    def check(expert: int) -> list[Finding]:
        start = expert * layer.stride
        for offset, data in _placed(job.record(expert)):
            if file.bytes(start + offset, len(data)) != data:
                part = next((part.name for part in layer.parts if offset < part.end), "padding")
                return [Finding(layer.file, f"{part} differs from the source", layer.path, expert)]
        return []

    def finish(own: list[Finding]) -> None:
        found.extend(own)
        advance(layer.stride)

    try:
        in_parallel(check, range(layer.experts), finish, workers(job.work))
    finally:
        file.close()
    return found


def _placed(blocks: Iterable[Array]) -> Iterator[tuple[int, memoryview]]:
    """Return blocks as bytes, with their offsets."""
    offset = 0
    for block in blocks:
        data = as_bytes(block)
        yield offset, data
        offset += len(data)
