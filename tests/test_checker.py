"""Each mistake the checker knows, shown by a broken kernel, and a correct look-alike it must let pass."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.errors import DeviceError

SHADER = Path(__file__).parent / "shaders" / "broken.metal"


def buffers(count: int) -> list[np.ndarray]:
    return [np.zeros(32, np.float32) for _ in range(count)]


BROKEN = [
    (
        "read_past_end",
        buffers(2),
        "thread 31: read of 4 bytes at byte 128 of read-only buffer 'in', which has 128",
    ),
    (
        "write_before_start",
        buffers(2),
        "thread 0: write of 4 bytes at byte -8 of buffer 'out', which has 128 bytes",
    ),
    ("threadgroup_past_end", buffers(1), "of threadgroup variable 'first', which has 128 bytes"),
    ("barrier_not_reached", [np.zeros(64, np.float32)], "barrier at line 77 not reached by thread 32"),
    ("barriers_differ", [np.zeros(64, np.float32)], "thread 32 at line 101, others at line 99"),
    (
        "never_written",
        [np.zeros(64, np.float32)],
        "thread 31: read of threadgroup variable 'shared' at byte 124",
    ),
    ("threadgroup_race", buffers(1), "race on threadgroup variable 'shared'"),
    ("simdgroup_barrier_race", [np.zeros(64, np.float32)], "race on threadgroup variable 'shared'"),
    ("wrong_fence", buffers(2), "race on buffer 'scratch'"),
    (
        "groups_race",
        [np.zeros(32, np.uint32)],
        "threadgroup (1,0,0), thread 0: race on buffer 'out' at byte 0",
    ),
    ("skipped_barrier", [np.zeros(32, np.float32)], "race on threadgroup variable 'shared'"),
    ("half_atomic", [np.zeros(1, np.uint32)], "race on buffer 'out' at byte 0"),
]


def line_of(statement: str, kernel: str) -> int:
    """The line of the only statement of this text in a kernel, or in the function before it."""
    lines = SHADER.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if f" {kernel}(" in line)
    last = next(n for n in range(first, len(lines)) if lines[n] == "}")
    found = [n + 1 for n in range(first, last) if statement in lines[n]]
    assert len(found) == 1
    return found[0]


RACES = [
    ("threadgroup_race", buffers(1), "shared[i] = float(i);", "out[i] = shared["),
    ("simdgroup_barrier_race", [np.zeros(64, np.float32)], "out[i] = shared[", "shared[i] = float(i);"),
    ("wrong_fence", buffers(2), "scratch[i] = float(i);", "out[i] = scratch["),
    ("groups_race", [np.zeros(32, np.uint32)], "out[tid] = tid;", "out[tid] = tid;"),
    ("half_atomic", [np.zeros(1, np.uint32)], "out[0] = 1;", "atomic_fetch_add_explicit("),
    ("skipped_barrier", [np.zeros(32, np.float32)], "if (i >= 16) shared[i]", "out[i] = i < 16"),
    ("function_race", buffers(1), "put: words[i] = value;", "out[i] = shared[i];"),
    ("caller_race", buffers(1), "out[i / 2] = twice(", "out[i / 2] = twice("),
]


@pytest.mark.parametrize(("kernel", "args", "before", "after"), RACES, ids=[case[0] for case in RACES])
def test_races_name_both_statements(
    checked: pyturbo.Device, kernel: str, args: list[np.ndarray], before: str, after: str
) -> None:
    with pytest.raises(DeviceError, match="race on") as caught:
        checked.kernel(kernel)(*args)
    function, colon, statement = before.rpartition(": ")
    first = line_of(statement, function if colon else kernel)
    last = line_of(after, kernel)
    assert f" at broken.metal:{first}, " in str(caught.value)
    assert str(caught.value).endswith(f" (broken.metal:{last})")


STATEMENTS = [
    "sum = shared[0];",
    "else if (kind == 1",
    "for (uint n = kind == 2",
    "n < (kind == 3",
    "n += kind == 4",
    "while (kind == 5",
    "} while (kind == 6",
    "switch (kind == 7",
    "sum += shared[0];",
    "const float more",
]


@pytest.mark.parametrize("kind", range(len(STATEMENTS)))
def test_every_kind_of_statement_is_named(checked: pyturbo.Device, kind: int) -> None:
    with pytest.raises(DeviceError, match="thread 0: race on threadgroup variable 'shared'") as caught:
        checked.kernel("statement_race")(np.zeros(32, np.float32), kind)
    read = line_of(STATEMENTS[kind], "statement_race")
    write = line_of("if (i == 31) shared[0]", "statement_race")
    assert f"written by thread 31 at broken.metal:{write}, read" in str(caught.value)
    assert str(caught.value).endswith(f" (broken.metal:{read})")


def test_other_mistakes_name_their_statement(checked: pyturbo.Device) -> None:
    with pytest.raises(DeviceError) as caught:
        checked.kernel("read_past_end")(*buffers(2))
    assert str(caught.value).endswith(f"(broken.metal:{line_of('out[i] = in[i + 1]', 'read_past_end')})")


@pytest.mark.parametrize(("kernel", "args", "report"), BROKEN, ids=[case[0] for case in BROKEN])
def test_reports_by_name(checked: pyturbo.Device, kernel: str, args: list[np.ndarray], report: str) -> None:
    with pytest.raises(DeviceError) as caught:
        checked.kernel(kernel)(*args)
    message = str(caught.value)
    assert message.startswith(f"kernel {kernel}, threadgroup (")
    assert report in message


LOOK_ALIKES = [
    ("read_past_end_ok", buffers(2)),
    ("write_before_start_ok", buffers(2)),
    ("threadgroup_past_end_ok", buffers(1)),
    ("barrier_not_reached_ok", [np.zeros(64, np.float32)]),
    ("never_written_ok", [np.zeros(64, np.float32)]),
    ("threadgroup_race_ok", buffers(1)),
    ("simdgroup_barrier_race_ok", [np.zeros(64, np.float32)]),
    ("wrong_fence_ok", buffers(2)),
    ("groups_race_ok", [np.zeros(32, np.uint32)]),
    ("half_atomic_ok", [np.zeros(32, np.uint8)]),
]


@pytest.mark.parametrize(("kernel", "args"), LOOK_ALIKES, ids=[case[0] for case in LOOK_ALIKES])
def test_lets_correct_kernels_pass(checked: pyturbo.Device, kernel: str, args: list[np.ndarray]) -> None:
    expected = [array.copy() for array in args]
    checked.kernel(kernel)(*args)
    pyturbo.Device("cpu:reference", check=False).kernel(kernel)(*expected)
    for got, want in zip(args, expected):
        np.testing.assert_array_equal(got, want)


def test_barrier_not_reached_is_an_error_without_the_checker() -> None:
    """A group that can never go on must not hang."""
    device = pyturbo.Device("cpu:reference", check=False)
    with pytest.raises(DeviceError, match="barrier_not_reached.*not reached"):
        device.kernel("barrier_not_reached")(np.zeros(64, np.float32))


def test_results_before_the_mistake_are_kept(checked: pyturbo.Device) -> None:
    source = np.arange(32, dtype=np.float32)
    out = np.full(32, -1, np.float32)
    with pytest.raises(DeviceError):
        checked.kernel("read_past_end")(source, out)
    np.testing.assert_array_equal(out[:31], source[1:])
    assert out[31] == -1


def test_the_device_goes_on_after_a_mistake(checked: pyturbo.Device) -> None:
    for _ in range(3):
        with pytest.raises(DeviceError):
            checked.kernel("barrier_not_reached")(np.zeros(64, np.float32))
        out = np.zeros(64, np.float32)
        checked.kernel("barrier_not_reached_ok")(out)
        assert out[0] == 1


def test_aliased_arguments_share_memory(checked: pyturbo.Device) -> None:
    """In-place work binds one buffer twice; the checker's copy must keep that."""
    both = np.arange(32, dtype=np.float32)
    checked.kernel("wrong_fence_ok")(np.zeros(32, np.float32), both)
    np.testing.assert_array_equal(both, np.arange(32)[::-1])


def test_environment_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTURBO_CHECK", "1")
    with pytest.raises(DeviceError, match="race"):
        pyturbo.Device("cpu").kernel("threadgroup_race")(np.zeros(32, np.float32))


def test_launches_beside_each_other_keep_their_writes(checked: pyturbo.Device) -> None:
    """The checker works on copies; only what the kernel wrote may come back."""
    both = np.zeros(64, np.uint32)
    done = threading.Barrier(2)

    def work(half: np.ndarray) -> None:
        kernel = checked.kernel("groups_race_ok")
        done.wait()
        for _ in range(50):
            kernel(half, groups=1, threads=32)

    threads = [threading.Thread(target=work, args=(both[i : i + 32],)) for i in (0, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert both.tolist() == [50 * (i % 32) for i in range(64)]
