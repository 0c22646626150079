"""What a checkpoint says of sampling: generation_config.json, and the metadata of GGUF files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyturbo.checkpoint.sampling import SamplingDefaults, directory_sampling, gguf_sampling
from pyturbo.checkpoint.tokenizer import huggingface_source
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
    assert gguf_sampling({"general.sampling.top_k": -1}).top_k == 0


def test_do_sample_decides_whether_tokens_are_drawn(tmp_path: Path) -> None:
    assert read(tmp_path, {"do_sample": True}).temperature == 1.0
    assert read(tmp_path, {"do_sample": True, "temperature": 0.6}).temperature == 0.6
    assert read(tmp_path, {"do_sample": False, "temperature": 0.6, "top_p": 0.5}).stated() == {
        "temperature": 0.0,
        "top_p": 0.5,
    }
    assert read(tmp_path, {"do_sample": None, "temperature": 0.6}).temperature == 0.6


def test_zero_and_one_are_false_and_true(tmp_path: Path) -> None:
    assert read(tmp_path, {"do_sample": 1}) == SamplingDefaults(temperature=1.0)
    assert read(tmp_path, {"do_sample": 0, "temperature": 0.6}) == SamplingDefaults(temperature=0.0)


def test_a_count_may_be_written_with_a_point(tmp_path: Path) -> None:
    found = read(tmp_path, {"top_k": 50.0}).top_k
    assert (found, type(found)) == (50, int)
    assert gguf_sampling({"general.sampling.top_k": -1.0}) == SamplingDefaults(top_k=0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"temperature": -1}, "expected a finite number from 0 on, got -1"),
        ({"temperature": "0.6"}, "expected a number, got '0.6'"),
        ({"temperature": True}, "expected a number, got True"),
        ({"temperature": 10**400}, "expected a number in range, got a number of 1329 bits"),
        ({"temperature": math.inf}, "expected a finite number from 0 on, got inf"),
        ({"top_p": 0}, "expected a number above 0 and at most 1, got 0"),
        ({"top_p": [0.5]}, "expected a number, got [0.5]"),
        ({"top_k": 0.5}, "expected an integer from 0 on, got 0.5"),
        ({"top_k": -2}, "expected an integer from 0 on, got -2"),
        ({"top_k": math.nan}, "expected an integer from 0 on, got nan"),
        ({"min_p": 2}, "expected a number from 0 to 1, got 2"),
        ({"repetition_penalty": 0}, "expected a finite number above 0, got 0"),
        ({"do_sample": "yes"}, "expected true or false, got 'yes'"),
        ({"do_sample": 2}, "expected true or false, got 2"),
    ],
)
def test_what_cannot_be_used_is_ignored_and_named(
    entry: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (name,) = entry
    others = {"temperature": 0.5, "top_p": 0.9, "top_k": 20}
    found = read(tmp_path, others | entry)
    assert found.ignored == {name: message}
    assert found.stated() == {key: value for key, value in others.items() if key != name}
    assert repr(found).endswith(f"ignored={found.ignored})")


def test_a_wrong_temperature_does_not_matter_where_nothing_is_drawn(tmp_path: Path) -> None:
    found = read(tmp_path, {"do_sample": False, "temperature": -1})
    assert found.temperature == 0.0
    assert read(tmp_path, {"do_sample": True, "temperature": "hot"}).temperature == 1.0


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"top_k": 20, "eos_token_id": 3}',
        '{"top_k": 10, "top_k": 20, "eos_token_id": 3}',
        '{"length_penalty": Infinity, "x": [NaN, -Infinity, 1e999], "top_k": 20, "eos_token_id": 3}',
    ],
)
def test_what_nobody_reads_may_be_odd(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text, encoding="utf-8")
    assert directory_sampling(tmp_path) == SamplingDefaults(top_k=20)
    assert huggingface_source(tmp_path, {}).eos_ids == (3,)


@pytest.mark.parametrize(
    "text", ['{"eos_token_id": 3, "eos_token_id": 4}', "{", "[]", '{"eos_token_id": NaN}']
)
def test_the_end_of_replies_is_not_guessed(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(
        FormatError, match="(duplicate key 'eos_token_id'|not valid|an? JSON object|token ids)"
    ):
        huggingface_source(tmp_path, {})


def test_gguf_files_have_keys_of_their_own() -> None:
    assert gguf_sampling({"general.name": "x"}) == SamplingDefaults()
    single = 0.6000000238418579  # as a file in float32 has it
    metadata = {
        "general.sampling.temp": single,
        "general.sampling.top_p": 0.949999988079071,
        "general.sampling.top_k": 20,
        "general.sampling.min_p": 0.0,
        "general.sampling.penalty_repeat": 1.0,
    }
    assert gguf_sampling(metadata) == SamplingDefaults(0.6, 0.95, 20, 0.0, 1.0)
    wrong = {"penalty_repeat": 0, "temp": 1e300, "top_k": np.array([1, 2]), "top_p": "most", "min_p": 0.25}
    found = gguf_sampling({f"general.sampling.{name}": value for name, value in wrong.items()})
    assert found.stated() == {"min_p": 0.25}
    assert found.ignored == {
        "general.sampling.temp": "expected a finite number from 0 on, got inf",
        "general.sampling.top_p": "expected a number, got 'most'",
        "general.sampling.top_k": "expected a number, got array([1, 2])",
        "general.sampling.penalty_repeat": "expected a finite number above 0, got 0",
    }
