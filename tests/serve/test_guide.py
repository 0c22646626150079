"""The clients in the guide talk to a server as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from live_server import LiveServer

from .conftest import KEY, Script

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split()[1] for block in BLOCKS])
def test_a_client_of_the_guide(
    live: LiveServer, script: Script, capsys: pytest.CaptureFixture[str], block: str
) -> None:
    script("</think>\n\nThe Loire.")
    for said, meant in (
        ("http://127.0.0.1:8080", live.url),
        ("SmolLM2-135M-Instruct.Q4_1", "chat"),
        ('"none"', f'"{KEY}"'),
    ):
        assert said in block
        block = block.replace(said, meant)
    scope: dict[str, Any] = {}
    exec(block, scope)
    scope["client"].close()
    assert capsys.readouterr().out.strip() == "The Loire."
