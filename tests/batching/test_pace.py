"""The size of pieces of prompts."""

from __future__ import annotations

from pyturbo.batching.pace import GRAIN, LEAST, Pace


def test_the_first_piece_is_one_grain() -> None:
    assert Pace(0.05, 256, 3, whole=False).piece(1000) == GRAIN


def test_pieces_take_the_time_allowed() -> None:
    pace = Pace(0.05, 256, 3, whole=False)
    pace.note(32, 32 / 4000)
    assert pace.piece(1000) == 192  # 200 tokens take 50 ms
    pace.note(192, 192 / 2000)
    assert pace.piece(1000) == 128  # at 3000 tokens per second, the mean of both
    pace.note(128, 1e-6)
    assert pace.piece(1000) == 256


def test_a_slow_device_reads_less_than_a_grain() -> None:
    pace = Pace(0.05, 256, 3, whole=False)
    pace.note(32, 0.06)
    assert pace.piece(1000) == 24  # 26 tokens take 50 ms
    pace.note(24, 10)
    assert pace.piece(1000) == 8  # at 267 tokens per second, 13
    pace.note(8, 10)
    assert [pace.piece(unread) for unread in (1000, 12, 11)] == [LEAST, LEAST, 11]


def test_a_slow_piece_is_forgotten() -> None:
    """Where 8 tokens take 22 ms, and each further one 1.5 ms."""
    pace = Pace(0.05, 256, 3, whole=False)
    pace.note(8, 10)
    sizes = []
    for _ in range(12):
        sizes.append(pace.piece(1000))
        pace.note(sizes[-1], 0.01 + 0.0015 * sizes[-1])
    assert sizes[0] == LEAST
    assert sizes[-1] == 16


def test_a_piece_may_take_as_long_as_a_step() -> None:
    pace = Pace(0.05, 256, 3, whole=False)
    pace.note(32, 0.16)
    assert pace.piece(1000) == LEAST
    pace.step_seconds = 0.3
    assert pace.piece(1000) == GRAIN


def test_no_piece_is_for_programs_of_single_tokens() -> None:
    pace = Pace(0.05, 32, 16, whole=False)
    pace.note(32, 10)
    assert [pace.piece(unread) for unread in (1000, 41, 40, 17)] == [24, 24, 40, 17]


def test_no_rest_is_left_for_programs_of_single_tokens() -> None:
    pace = Pace(0.05, 256, 3, whole=False)
    assert [pace.piece(unread) for unread in (32, 35, 36)] == [32, 35, 32]


def test_whole_chunks() -> None:
    pace = Pace(0.05, 256, 3, whole=True)
    pace.note(256, 100)
    assert [pace.piece(unread) for unread in (1000, 259, 260, 7)] == [256, 259, 256, 7]


def test_a_chunk_may_be_less_than_a_grain() -> None:
    pace = Pace(0.05, 16, 3, whole=False)
    assert pace.piece(100) == 16
    pace.note(16, 10)
    assert pace.piece(100) == 8
