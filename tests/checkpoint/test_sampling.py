"""What a checkpoint says of sampling: generation_config.json, and the metadata of GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyturbo.checkpoint.sampling import SamplingDefaults, directory_sampling, gguf_sampling
from pyturbo.errors import FormatError


def read(folder: Path, config: Any) -> SamplingDefaults:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return directory_sampling(folder)


def test_entries_have_the_names_of_options(tmp_path: Path) -> None:
    assert directory_sampling(tmp_path) == SamplingDefaults()
    assert read(tmp_path, {"eos_token_id": 3, "temperature": None}).stated() == {}
    config = {"temperature": 1, "top_p": 0.9, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.05}
    found = read(tmp_path, config)
    assert found.stated() == config
    assert isinstance(found.temperature, float)
    assert repr(found) == (
        "SamplingDefaults(temperature=1.0, top_p=0.9, top_k=20, min_p=0.0, repetition_penalty=1.05)"
    )


def test_top_k_of_minus_one_is_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"top_k": -1}).top_k == 0
    assert gguf_sampling(Path("model.gguf"), {"general.sampling.top_k": -1}).top_k == 0


def test_do_sample_decides_whether_tokens_are_drawn(tmp_path: Path) -> None:
    assert read(tmp_path, {"do_sample": True}).temperature == 1.0
    assert read(tmp_path, {"do_sample": True, "temperature": 0.6}).temperature == 0.6
    assert read(tmp_path, {"do_sample": False, "temperature": 0.6, "top_p": 0.5}).stated() == {
        "temperature": 0.0,
        "top_p": 0.5,
    }
    assert read(tmp_path, {"do_sample": None, "temperature": 0.6}).temperature == 0.6


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"temperature": -1}, "temperature: expected a finite number from 0 on, got -1"),
        ({"temperature": "warm"}, "temperature: expected a number, got 'warm'"),
        ({"temperature": True}, "temperature: expected a number, got True"),
        ({"temperature": 10**400}, "temperature: expected a number in range"),
        ({"top_p": 0}, "top_p: expected a number above 0 and at most 1, got 0"),
        ({"top_p": [0.5]}, "top_p: expected a number, got"),
        ({"top_k": 0.5}, "top_k: expected an integer from 0 on, got 0.5"),
        ({"top_k": -2}, "top_k: expected an integer from 0 on, got -2"),
        ({"min_p": 2}, "min_p: expected a number from 0 to 1, got 2"),
        ({"repetition_penalty": 0}, "repetition_penalty: expected a finite number above 0, got 0"),
        ({"do_sample": 1}, "do_sample: expected true or false, got 1"),
    ],
)
def test_bad_values_are_named(entry: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=f"generation_config.json: {message}"):
        read(tmp_path, entry)


def test_gguf_files_have_keys_of_their_own() -> None:
    path = Path("model.gguf")
    assert gguf_sampling(path, {"general.name": "x"}) == SamplingDefaults()
    single = 0.6000000238418579  # as a file in float32 has it
    metadata = {
        "general.sampling.temp": single,
        "general.sampling.top_p": 0.949999988079071,
        "general.sampling.top_k": 20,
        "general.sampling.min_p": 0.0,
        "general.sampling.penalty_repeat": 1.0,
    }
    assert gguf_sampling(path, metadata) == SamplingDefaults(0.6, 0.95, 20, 0.0, 1.0)
    with pytest.raises(FormatError, match="model.gguf: general.sampling.temp: expected a finite number"):
        gguf_sampling(path, {"general.sampling.temp": -0.5})
    with pytest.raises(FormatError, match="general.sampling.top_k: expected a number, got 'many'"):
        gguf_sampling(path, {"general.sampling.top_k": "many"})
