"""The soak, for a minute, with clients that leave the machine time for other tests."""

from __future__ import annotations

import pytest

import serve_soak


@pytest.mark.slow
def test_a_server_under_random_use(capsys: pytest.CaptureFixture[str]) -> None:
    status = serve_soak.main(["0.83", "--round", "25", "--pause", "4"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "0 findings" in said
