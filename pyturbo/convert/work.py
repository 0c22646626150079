"""Conversion of values, in blocks of rows on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from pyturbo._arrays import Array
from pyturbo.checkpoint.source import Rows
from pyturbo.checkpoint.tensors import Progress
from pyturbo.convert.parallel import in_parallel
from pyturbo.convert.plan import Job
from pyturbo.convert.shards import Shards
from pyturbo.ops import affine_quantize, fp_quantize

#: Values in a block, unless one row is longer. A core needs about 40 bytes for each while it works.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class _Block:
    job: Job
    part: Rows
    first: int  # first row in the part
    count: int
    row: int  # first row in the output

    @property
    def source_bytes(self) -> int:
        return self.count * self.part.width * self.part.info.array_dtype.itemsize


def run(jobs: list[Job], shards: Shards, progress: Progress | None) -> None:
    """Fill the files. An error in one block ends the work; no thread runs after the return."""
    total, done = sum(job.source_bytes for job in jobs), 0

    def finish(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    in_parallel(lambda block: _convert(block, shards), _blocks(jobs), finish, os.cpu_count() or 1)


def _blocks(jobs: list[Job]) -> Iterator[_Block]:
    for job in jobs:
        row = 0
        for part in job.parts:
            step = max(1, _BLOCK // part.width)
            for first in range(0, part.count, step):
                count = min(step, part.count - first)
                yield _Block(job, part, first, count, row)
                row += count


def _convert(block: _Block, shards: Shards) -> int:
    """Convert and write a block, and return its number of bytes in the source."""
    job = block.job
    values = block.part.read(block.first, block.count)
    if job.offset:
        values = values + values.dtype.type(1)  # in the type of the file, as MLX adds it
    values = values.astype(job.dtype)
    arrays: tuple[Array, ...] = (values,)
    if job.format is not None and job.format.mode == "affine":
        arrays = affine_quantize(values, job.format.bits, job.format.group_size)
    elif job.format is not None:
        arrays = fp_quantize(values, job.format.mode)
    for output, array in zip(job.outputs, arrays):
        shards.write(output, block.row * array.nbytes // len(array), array)
    return block.source_bytes
