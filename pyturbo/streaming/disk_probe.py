"""Measure how fast records are read from a disk, to choose how experts are read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from pyturbo._device import Device
from pyturbo._experts import time_reads
from pyturbo._messages import size
from pyturbo.errors import FileError
from pyturbo.files.replace import sync, writing
from pyturbo.files.write import drop_cached
from pyturbo.streaming.disk import RECORD, DiskSpeed, ReadSpeed
from pyturbo.streaming.memory import RecordFile

#: Settings to try, in the order of preference.
_THREADS = (8, 4, 16, 2, 32, 1)
_SPLITS = (1 << 20, 0, 256 << 10)
_CACHED_THREADS = (8, 4, 16)  # through the page cache, whole records

_ROUNDS = 3  # every setting is measured once in each, so that a busy moment does not hit one of them alone
_FASTEST = 20e9  # bytes per second: a measurement has enough records for this speed
_RECORDS = 20_000  # of a measurement, at most

_SYNCED = 16  # records of a temporary file that are written at once
_MOST, _LEAST = 512 << 20, 64 << 20  # bytes of that file

Progress = Callable[[int, int], None]


def probe_reads(
    files: Sequence[RecordFile],
    at_once: int = 8,
    seconds: float = 10.0,
    progress: Progress | None = None,
) -> DiskSpeed:
    """Read random records of some files, in every way that is worth trying, for about `seconds` in all.

    Records are read `at_once` at a time, as the experts of a layer are. Files of several sizes of records:
    those of the largest are read. `progress` is called with measurements done, and their number.
    """
    stride = max(file.stride for file in files)
    files = [file for file in files if file.stride == stride]
    settings = [(threads, True, split) for split in _SPLITS if split < stride for threads in _THREADS] + [
        (threads, False, 0) for threads in _CACHED_THREADS
    ]
    reads = _Reads(files, at_once)
    found: dict[tuple[int, bool, int], list[float]] = {setting: [] for setting in settings}
    total, limit = len(settings) * _ROUNDS, seconds / (len(settings) * _ROUNDS)
    for number in range(total):
        setting = settings[number % len(settings)]
        if setting in found:
            bandwidth = reads.measure(*setting, limit)
            if bandwidth is None:  # the file system has no direct reads
                found = {setting: speeds for setting, speeds in found.items() if not setting[1]}
            else:
                found[setting].append(bandwidth)
        if progress is not None:
            progress(number + 1, total)
    speeds = tuple(ReadSpeed(*setting, median(values)) for setting, values in found.items())
    return DiskSpeed(stride, at_once, speeds)


class _Reads:
    """Reads of random records into a few slots."""

    def __init__(self, files: Sequence[RecordFile], at_once: int) -> None:
        self._files, self._at_once, self._stride = files, at_once, files[0].stride
        self._slab = Device("cpu", threads=1, check=False).empty((at_once * self._stride,), np.uint8)
        self._random = np.random.default_rng(0)
        self._firsts = np.cumsum([0, *(file.experts for file in files)])

    def measure(self, threads: int, direct: bool, split: int, seconds: float) -> float | None:
        """Return bytes per second; None if direct reads are not possible. The first burst starts threads."""
        if not direct:
            for file in self._files:
                drop_cached(file.path)
        wanted = 2 * self._at_once + int(min(_RECORDS, _FASTEST * seconds / self._stride))
        count = int(self._firsts[-1])
        rounds = 1 if not direct else -(-wanted // count)  # read again, they would come from the page cache
        order = np.concatenate([self._random.permutation(count) for _ in range(rounds)])[:wanted]
        layers = np.searchsorted(self._firsts, order, side="right") - 1
        bursts, was_direct = time_reads(
            [(file.path, file.experts) for file in self._files],
            self._stride,
            self._slab,
            zip(layers.tolist(), (order - self._firsts[layers]).tolist()),
            seconds=seconds,
            threads=threads,
            direct=direct,
            split=split,
        )
        if direct and not was_direct:
            return None
        timed = bursts[1:] or bursts
        records = len(order) if len(bursts) * self._at_once > len(order) else len(bursts) * self._at_once
        skipped = self._at_once if len(bursts) > 1 else 0
        return (records - skipped) * self._stride / sum(timed)


@contextmanager
def temporary_records(folder: Path, progress: Progress | None = None) -> Iterator[RecordFile]:
    """Write a file of random records to a folder, to read them there, and remove it at the end.

    `progress` is called with the bytes that are on the disk, and with their number.
    """
    free = shutil.disk_usage(folder).free
    nbytes = min(_MOST, free // 4 // RECORD * RECORD)
    if nbytes < _LEAST:
        raise FileError(
            f"{folder}: expected {size(4 * _LEAST)} of free space to measure reads, got {size(free)}"
        )
    random = np.random.default_rng()
    with writing(folder), tempfile.NamedTemporaryFile(prefix=".pyturbo-probe-", dir=folder) as file:
        for done in range(0, nbytes, _SYNCED * RECORD):
            end = min(nbytes, done + _SYNCED * RECORD)
            file.write(random.bytes(end - done))
            file.flush()
            sync(file.fileno())
            if progress is not None:
                progress(end, nbytes)
        drop_cached(Path(file.name))
        yield RecordFile(Path(file.name), nbytes // RECORD, RECORD)
