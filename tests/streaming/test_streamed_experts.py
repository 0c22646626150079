"""The slots of records of several sizes: which are for staging, and which layers are read ahead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pyturbo
from pyturbo.streaming import Policy, RecordFile, StreamedExperts, streamed

SMALL, LARGE = 16384, 65536


class SpiedStore(streamed.ExpertStore):
    """Notes how many slots there are, and how many of them are for staging."""

    sizes: list[tuple[int, int]]

    def __init__(self, files: Any, stride: int, slab: Any, tables: Any, **options: Any) -> None:
        self.sizes = [(slab.shape[0], options["staging"])]

    def resize(self, slots: int, staging: int = 0) -> None:
        super().resize(slots, staging)
        self.sizes.append((slots, staging))


class SmallDevice(pyturbo.Device):
    """A device that cannot use long buffers."""

    longest_argument = 40 * SMALL


def opened(
    folder: Path,
    strides: Sequence[int],
    share: float = 1.0,
    kind: type[pyturbo.Device] = pyturbo.Device,
    **policy: Any,
) -> StreamedExperts:
    files = []
    for number, stride in enumerate(strides):
        path = folder / f"layer-{number}.bin"
        path.write_bytes(bytes(32 * stride))
        files.append(RecordFile(path, 32, stride))
    nbytes = int(share * sum(32 * stride for stride in strides))
    return StreamedExperts(kind("cpu", threads=1), files, nbytes, Policy(**policy))


@pytest.mark.parametrize(
    ("strides", "share", "expected"),
    [
        ((SMALL, SMALL, SMALL), 1.0, [32, 32, 32]),
        ((SMALL, SMALL, SMALL), 0.8, [25, 25, 25]),
        ((SMALL, SMALL, SMALL), 0.4, [38]),
        ((SMALL, LARGE, SMALL), 1.0, [32, 32, 10]),
    ],
)
def test_slots_are_divided_among_buffers(
    tmp_path: Path, strides: Sequence[int], share: float, expected: list[int]
) -> None:
    experts = opened(tmp_path, strides, share, SmallDevice)
    assert [len(slab) for slab in experts.slabs] == expected
    assert experts.least == sum(slab.shape[1] for slab in experts.slabs)
    assert all(len(experts.records(layer)) in expected for layer in range(len(strides)))
    experts.close()


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ((SMALL, SMALL, SMALL), [True, True, False]),
        ((SMALL, LARGE, SMALL, LARGE), [False] * 4),
        ((SMALL, LARGE, LARGE, SMALL, SMALL), [False, True, False, True, False]),
    ],
)
def test_only_the_next_layer_is_read_ahead(
    tmp_path: Path, strides: Sequence[int], expected: list[bool]
) -> None:
    for ahead in (True, False):
        experts = opened(tmp_path, strides, ahead=ahead)
        looks = [experts.served(layer).looks_ahead for layer in range(len(strides))]
        assert looks == [ahead and one for one in expected]
        experts.close()


@pytest.mark.parametrize(("given", "of_48"), [(None, 6), (0, 0), (4, 4), (50, 6)])
def test_slots_for_staging_depend_on_the_slots_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int | None, of_48: int
) -> None:
    monkeypatch.setattr(streamed, "ExpertStore", SpiedStore)
    experts = opened(tmp_path, (SMALL, SMALL), staging=given)
    for slots in (48, 5, 64):
        experts.resize(slots * SMALL)
    few = opened(tmp_path, (SMALL, SMALL), 0.75, staging=given)
    sizes = experts._groups[0].store.sizes
    assert sizes == [(64, 0), (48, of_48), (5, 0), (64, 0)]
    assert few._groups[0].store.sizes == [(48, of_48)]
    experts.close()
    few.close()
