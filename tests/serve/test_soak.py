"""The soak, for less than a minute, with clients that leave the machine time for other tests."""

from __future__ import annotations

import pytest

import serve_soak
from pyturbo.engine.runner import MANY

#: More conversations than have a program for each number of them.
CROWD = MANY + 4


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("slots", "minutes", "options"),
    [
        (serve_soak.SLOTS, 0.2, ("--round", "6", "--pause", "4")),
        (CROWD, 0.15, ("--round", "9", "--pause", "1")),
    ],
)
def test_a_server_under_random_use(
    slots: int, minutes: float, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status = serve_soak.main([str(minutes), "--slots", str(slots), *options])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "0 findings" in said
