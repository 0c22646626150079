"""Timelines of replays: every execution of a launch, every read and every wait, on one clock.

Does not catch: times of a real GPU.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import pyturbo
from host_loops import Log, Work, record
from packed_models import IN_PLACE, streamed, write_packed
from pyturbo import _native_tests
from pyturbo._device import device_traits
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.engine.timeline import ProfileEvent, covered, lanes, merged, of_kind, rates
from pyturbo.errors import FileError
from pyturbo.streaming import RecordFile
from trace_events import read_trace


@pytest.fixture(autouse=True)
def plain_reads() -> Iterator[None]:
    yield
    _native_tests.plain_reads()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_packed(tmp_path_factory.mktemp("timeline"))


@pytest.fixture(params=pyturbo.devices())
def device_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_every_execution_is_on_the_timeline(device: pyturbo.Device, passes: int) -> None:
    log = Log(device)
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    work.miss(passes)
    before = time.perf_counter()
    timed = program.timeline()
    after = time.perf_counter()
    assert log.read() == [1, 2, *[3] * (1 + passes), 4]
    kernels = [launch.label for launch in program.listing()]
    ran = [kernels[run.launch] for run in timed.runs]
    assert ran == ["before", "count", "meanwhile", *["pass"] * (1 + passes), "after"]
    assert [(call.loop, call.number) for call in timed.calls] == [(0, n) for n in range(passes + 2)]
    # Launches and calls come one after the other, all within the replay.
    spans = sorted((*span[-2:],) for span in (*timed.runs, *timed.calls))
    assert all(begin <= end for begin, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert before <= timed.begin <= spans[0][0]
    assert spans[-1][1] <= timed.end <= after


def test_without_a_miss_there_are_no_calls(device: pyturbo.Device) -> None:
    log = Log(device)
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    work.hit()
    timed = program.timeline()
    assert [run.launch for run in timed.runs] == list(range(5))
    assert timed.calls == []


def test_reads_match_the_counters(packed: tuple[Path, Path], device_name: str, tmp_path: Path) -> None:
    with streamed(packed[1], device_name, 3, threads=2) as model:
        session = model.session(64)
        session.prefill([1, 2, 3])
        before = model.expert_counters
        profile = session.profile()
        after = model.expert_counters
        launches = len(session.profile().timeline)
    events = profile.timeline
    assert launches > 50
    grown = Counter(
        {f"layers.{i}": now["bytes"] - then["bytes"] for i, (then, now) in enumerate(zip(before, after))}
    )
    reads, waits = of_kind(events, "read"), of_kind(events, "wait")
    found: Counter[str] = Counter()
    for read in reads:
        found[read.place] += read.nbytes
        assert not read.ahead
    assert found == grown
    assert found.total() > 0
    waited = sum(layer["wait_seconds"] for layer in after) - sum(layer["wait_seconds"] for layer in before)
    assert sum(event.seconds for event in waits) >= waited > 0
    check_order(events)
    line = repr(profile).splitlines()[-1]
    assert line.startswith(f"experts: {len(reads)} read, ")
    assert line.endswith(f"a read was under way {profile.busy:.0%} of the time")
    profile.save_trace(tmp_path / "trace.json")
    entries = read_trace(tmp_path / "trace.json")
    found = Counter(entry["cat"] for entry in entries if entry["ph"] == "X")
    assert found == Counter(event.kind for event in events)
    speeds = [entry["args"]["MB/s"] for entry in entries if entry["ph"] == "C"]
    assert max(speeds) > 0
    assert speeds[-1] == pytest.approx(0, abs=0.01)


def check_order(events: list[ProfileEvent]) -> None:
    """Require that all lies in the replay, and that launches and waits do not overlap."""
    (replay,) = of_kind(events, "replay")
    assert replay.begin == 0
    assert events == sorted(events, key=lambda event: event.begin)
    assert events[0] is replay
    assert all(0 <= event.begin <= event.end <= replay.end for event in events)
    host = [event for event in events if event.kind in {"launch", "wait"}]
    assert all(first.end <= second.begin for first, second in pairwise(host))


def test_launches_go_on_while_a_record_is_read(packed: tuple[Path, Path], device_name: str) -> None:
    """One read takes long. What needs no expert is computed meanwhile, and where passes wait for single
    experts, so are those that arrive before it.
    """
    with streamed(packed[1], device_name, 100) as model:
        with model.runner.program(64, 1, "last") as (_, graph):
            graph.program.prepare()  # kernels are compiled before the read, not during it
            once = len(graph.program)
        _native_tests.fail_reads("slow", 800, first=0, count=1)
        profile = model.session(64).profile()
        events, reads = profile.timeline, of_kind(profile.timeline, "read")
    slow = max(reads, key=lambda read: read.seconds)
    assert slow.place == "layers.0"
    assert slow.seconds >= 0.8
    # A thread begins to read some time after it was asked to, on a busy machine after those launches.
    asked = min(wait.begin for wait in of_kind(events, "wait"))
    since = slow.begin if device_traits(device_name).pass_experts == 1 else asked
    meanwhile = [e for e in of_kind(events, "launch") if since <= e.begin and e.end <= slow.end]
    assert {event.place for event in meanwhile} == {"layers.0.mlp"}
    assert len(of_kind(events, "launch")) > once  # the launches of passes ran again
    assert sum(row.launches for row in profile.rows()) == len(of_kind(events, "launch"))
    assert profile.busy > 0.1


def test_reads_ahead_are_marked(packed: tuple[Path, Path]) -> None:
    with streamed(packed[1], "cpu", 100, ahead=True) as model:
        session = model.session(64)
        session.timings = profile = pyturbo.Profile()
        for token in (1, 2, 3, 4, 5):
            session.step(token)
        guessed = sum(layer["guessed"] for layer in model.expert_counters)
    ahead = [event for event in of_kind(profile.timeline, "read") if event.ahead]
    assert len(ahead) >= guessed > 0
    assert "layers.0" not in {event.place for event in ahead}  # no layer before it could expect anything


def test_resident_models_have_launches_only(
    packed: tuple[Path, Path], device_name: str, tmp_path: Path
) -> None:
    with pyturbo.load(packed[0], device_name) as model:
        session = model.session(64)
        session.prefill([1, 2, 3])
        profile = session.profile()
        with model.runner.program(64, 1, "last") as (_, graph):
            listing = graph.program.listing()
    events = profile.timeline
    check_order(events)
    launches = of_kind(events, "launch")
    assert [(event.place, event.name) for event in launches] == [(row.label, row.kernel) for row in listing]
    assert len(events) == 1 + len(launches)
    assert profile.busy == 0
    assert sum(event.seconds for event in launches) == pytest.approx(profile.seconds)
    assert "experts:" not in repr(profile)
    profile.save_trace(tmp_path / "trace.json")
    assert {entry["pid"] for entry in read_trace(tmp_path / "trace.json")} == {1}


@pytest.mark.parametrize("device_name", IN_PLACE)
def test_mapped_experts_are_read_once(packed: tuple[Path, Path], device_name: str) -> None:
    with pyturbo.load(packed[1], device_name) as model:
        session = model.session(64)
        first, second = session.profile(), session.profile()
        records = {(file.place, file.stride) for file in record_files(packed[1])}
    reads = of_kind(first.timeline, "read")
    assert {(read.place, read.nbytes) for read in reads} == records
    assert repr(first).splitlines()[-1].startswith(f"experts: {len(reads)} read, ")
    check_order(first.timeline)
    assert {event.kind for event in second.timeline} == {"replay", "launch"}  # the same experts again


def record_files(path: Path) -> list[RecordFile]:
    with open_checkpoint(path) as checkpoint:
        assert isinstance(checkpoint, PackedCheckpoint)
        return checkpoint.record_files()


def test_replays_follow_one_another(packed: tuple[Path, Path]) -> None:
    with streamed(packed[1], "cpu", 3) as model:
        session = model.session(512)
        session.timings = profile = pyturbo.Profile()
        session.prefill(range(40))
        session.step(7)
        session.timings = None
        session.step(8)
    replays = of_kind(profile.timeline, "replay")
    assert [event.name for event in replays] == ["40 tokens", "1 token"]
    assert replays[0].end <= replays[1].begin
    assert all(event.end <= replays[1].end for event in profile.timeline)


def test_a_failed_replay_ends_the_recording(packed: tuple[Path, Path]) -> None:
    with streamed(packed[1], "cpu", 3) as model:
        session = model.session(64)
        session.timings = profile = pyturbo.Profile()
        _native_tests.fail_reads("end")
        with pytest.raises(FileError):
            session.step(1)
        _native_tests.plain_reads()
        assert profile.timeline == []
        model.session(64).step(1)
        assert model.runner.experts.trace(False) == []


def test_only_traces_are_replaced(packed: tuple[Path, Path], tmp_path: Path) -> None:
    with pyturbo.load(packed[0], "cpu") as model:
        profile = model.session(8).profile()
    path = tmp_path / "trace.json"
    for _ in range(2):
        profile.save_trace(path)
    path.write_bytes(b"")
    profile.save_trace(path)
    read_trace(path)
    path.write_text('{"other": 1}')
    with pytest.raises(FileError, match="exists and is not a trace of pyturbo"):
        profile.save_trace(path)
    assert path.read_text() == '{"other": 1}'
    with pytest.raises(FileError, match="expected a file to write to"):
        profile.save_trace(tmp_path)
    with pytest.raises(FileError, match="cannot be written: No such file"):
        profile.save_trace(tmp_path / "missing" / "trace.json")
    assert sorted(tmp_path.iterdir()) == [path]


def events_at(*spans: tuple[float, float]) -> list[ProfileEvent]:
    return [ProfileEvent("read", "layers.0", "expert 0", begin, end, nbytes=100) for begin, end in spans]


def test_lanes_are_as_few_as_possible() -> None:
    events = events_at((0, 3), (1, 2), (2, 5), (3, 4), (4.5, 6))
    rows = [[(event.begin, event.end) for event in lane] for lane in lanes(events)]
    assert rows == [[(0, 3), (3, 4), (4.5, 6)], [(1, 2), (2, 5)]]
    assert lanes([]) == []


def test_time_that_is_covered() -> None:
    events = events_at((1, 2), (1.5, 4), (6, 7))
    assert merged(events) == [(1, 4), (6, 7)]
    assert covered(events, events_at((0, 10))) == 4
    assert covered(events, events_at((3, 5), (6.5, 9))) == 1.5
    assert covered(events, events_at((6.5, 9), (3, 5))) == 1.5
    assert covered(events, events_at((0, 1), (2, 3), (3, 3.5), (4, 6), (7, 8))) == 1.5
    assert covered(events, []) == covered([], events) == 0


def test_the_time_that_is_covered_is_found_in_one_walk() -> None:
    """Comparing every replay with every read would take minutes."""
    count = 30_000
    reads = events_at(*((i + 0.25, i + 0.75) for i in range(count)))
    begin = time.perf_counter()
    assert covered(reads, events_at(*((i, i + 0.5) for i in range(count)))) == count / 4
    assert time.perf_counter() - begin < 10


def test_speeds_of_reads_add_up() -> None:
    assert rates(events_at((0, 10), (4, 8), (8, 8))) == [(0, 10), (4, 35), (8, 10), (10, 0)]
