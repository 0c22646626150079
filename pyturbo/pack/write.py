"""Writing of the files of a packed checkpoint. Every file has reached the disk on return."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from pyturbo.checkpoint.manifest import Resident, checksum
from pyturbo.checkpoint.names import is_padding
from pyturbo.convert.parallel import in_parallel
from pyturbo.convert.shards import safetensors_header
from pyturbo.files.replace import sync, sync_path
from pyturbo.files.write import as_bytes, write_at
from pyturbo.pack.checksums import workers
from pyturbo.pack.plan import LayerJob, Plan, ResidentJob

#: Metadata of the safetensors file, in addition to its format.
WRITTEN_BY = {"written_by": "pyturbo pack"}

#: The data of the safetensors file starts at a multiple of this many bytes.
DATA_ALIGNMENT = 4096

Advance = Callable[[int], None]  # called with a number of bytes that were written


def resident_header(plan: Plan) -> tuple[bytes, dict[str, int], int]:
    """Return everything before the data of the resident tensors, their offsets, and the size of the file."""
    outputs = plan.outputs
    header, offsets = safetensors_header(outputs, WRITTEN_BY, DATA_ALIGNMENT, padded=True)
    return header, offsets, max([len(header), *(offsets[one.name] + one.nbytes for one in outputs)])


def write_resident(path: Path, plan: Plan, advance: Advance) -> Resident:
    """Write the tensors outside of records, one after another in blocks of rows."""
    header, offsets, size = resident_header(plan)
    sums: dict[str, str] = {}
    with _new_file(path, size) as file:
        write_at(file, memoryview(header), 0)
        advance(size - sum(output.nbytes for output in plan.outputs))
        for job in plan.residents:
            sums |= _write_tensors(file, job, offsets, advance)
    ordered = {name: sums[name] for name in offsets if not is_padding(name)}
    return Resident(path.name, size, checksum(header), ordered)


def _write_tensors(file: int, job: ResidentJob, offsets: dict[str, int], advance: Advance) -> dict[str, str]:
    """Write the arrays of a tensor or weight, and return their checksums by name."""
    places = {kind: offsets[output.name] for kind, output in job.outputs.items()}
    states = {kind: xxhash.xxh3_64() for kind in job.outputs}
    for block in job.blocks():
        for kind, array in block.items():
            data = as_bytes(array)
            states[kind].update(data)
            write_at(file, data, places[kind])
            places[kind] += len(data)
            advance(len(data))
    return {job.outputs[kind].name: state.hexdigest() for kind, state in states.items()}


def write_layer(path: Path, job: LayerJob, advance: Advance) -> list[str]:
    """Write the records of a layer, several at once, and return their checksums."""
    stride = job.layer.stride
    sums: list[str] = []
    with _new_file(path, job.layer.nbytes) as file:

        def write_record(expert: int) -> str:
            state, position = xxhash.xxh3_64(), expert * stride
            for block in job.record(expert):
                data = as_bytes(block)
                state.update(data)
                write_at(file, data, position)
                position += len(data)
            return state.hexdigest()

        def finish(known: str) -> None:
            sums.append(known)
            advance(stride)

        in_parallel(write_record, range(job.layer.experts), finish, workers(job.work))
    return sums


@contextmanager
def _new_file(path: Path, size: int) -> Iterator[int]:
    """Open an empty file of that size to write to; at the end it and its name have reached the disk."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(file, size)
        yield file
        sync(file)
    finally:
        os.close(file)
    sync_path(path.parent)
