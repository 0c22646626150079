"""``pyturbo generate`` as a user types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyturbo
from pyturbo.cli import main
from text.tiny_chat import write_model
from trace_events import read_trace


def test_generate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_model(tmp_path / "model"))
    model = pyturbo.load(folder)
    assert (
        main(["generate", "Hello", "--raw", "--model", folder, "--max-tokens", "6", "--stats", "--profile"])
        == 0
    )
    shown = capsys.readouterr()
    assert shown.out == model.generate("Hello", max_tokens=6).text + "\n"
    assert "first token after" in shown.err
    assert "6 written at" in shown.err
    assert "MiB peak resident memory" in shown.err
    assert "delta_net_k64" in shown.err
    options = ["--temperature", "0.9", "--seed", "4", "--max-tokens", "6", "--system", "Be brief.", "--json"]
    options += ["--logprobs", "2"]
    assert main(["generate", "Hello", "--model", folder, *options]) == 0
    reply = json.loads(capsys.readouterr().out)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert reply["tokens"] == model.generate(messages, 6, temperature=0.9, seed=4).tokens
    assert reply["finish_reason"] == "length"
    assert reply["stats"]["tokens"] == 6
    assert reply["memory"]["weights"] > 1e6
    assert [len(top) for top in reply["top"]] == [2] * 6
    assert main(["generate", "Hello", "--model", folder, "--kv", "turbo4v2", *options]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["state"] < reply["memory"]["state"]
    fast = pyturbo.load(folder, precision="fast").generate("Hello", max_tokens=6).text
    words = ["--raw", "--max-tokens", "6", "--precision", "fast"]
    assert main(["generate", "Hello", "--model", folder, *words]) == 0
    assert capsys.readouterr().out == fast + "\n"
    for arguments, message in (
        (["x", "--model", str(tmp_path / "absent")], "absent: no such file or directory"),
        (["", "--raw", "--model", folder], "prompt: expected at least one token, got none"),
        (["x", "--system", "y"], "--system: expected a model with a chat template, got one without"),
    ):
        assert main(["generate", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_constrained_replies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_model(tmp_path / "model", layers=2))
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"enum": [true, 12]}')
    grammar.write_text('start: "<" /[ab]{2}/ ">"')
    command = ["generate", "Hello", "--model", folder, "--max-tokens", "20"]
    for words, expected in (
        (["--schema", str(schema)], "true|12"),
        (["--regex", "[xy]{3}"], "[xy]{3}"),
        (["--grammar", str(grammar)], "<[ab]{2}>"),
        (["--logit-bias", "q=1000", "--max-tokens", "3"], "qqq"),
        (["--logit-bias", "q=1000", "--stop", "q", "--min-tokens", "2"], "qq"),
    ):
        assert main([*command, *words]) == 0
        assert re.fullmatch(expected, capsys.readouterr().out.rstrip("\n"))
    further = (
        "--presence-penalty 1 --frequency-penalty 1 --typical-p 0.9 --top-n-sigma 2 --xtc-probability 0.5"
    )
    further += " --xtc-threshold 0.1 --dry-multiplier 1 --dry-base 2 --dry-allowed-length 1 --dry-window 9"
    words = [*further.split(), "--dry-breaker", "a", "--ignore-eos", "--temperature", "1", "--seed", "3"]
    words += ["--reasoning-budget", "5"]
    assert main([*command, *words, "--json", "--n", "2"]) == 0
    replies = json.loads(capsys.readouterr().out)
    assert [len(reply["tokens"]) for reply in replies] == [20, 20]
    assert main([*command, *words, "--n", "2"]) == 0
    assert capsys.readouterr().out == "\n\n".join(reply["text"] for reply in replies) + "\n"


def test_wrong_constraints_are_found_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, binary = tmp_path / "wrong", tmp_path / "binary"
    wrong.write_text('{"type": "text"}')
    binary.write_bytes(b"\xff")
    for words, message in (
        (["--schema", str(tmp_path / "absent")], "--schema: "),
        (["--schema", str(tmp_path)], "cannot be read: Is a directory"),
        (["--grammar", str(binary)], "expected text in UTF-8, got other bytes"),
        (
            ["--schema", str(wrong)],
            "--schema: expected a JSON schema that a reply can fit: 'Invalid type: text'",
        ),
        (["--grammar", str(wrong)], "--grammar: expected a Lark grammar"),
        (["--regex", "["], "--regex: expected a regular expression"),
        (["--regex", "a", "--grammar", str(wrong)], "--grammar: expected one of schema, regex and grammar"),
        (["--min-tokens", "300"], "--min-tokens: expected at most max_tokens, 256, got 300"),
        (["--typical-p", "0"], "--typical-p: expected a number above 0"),
        (["--logit-bias", "5"], "expected TOKEN=BIAS, as in 42=-1.5, got '5'"),
        (["--logit-bias", "5=inf"], "--logit-bias: expected finite numbers or -inf, got inf"),
        (["--n", "0"], "--n: expected an integer from 1 on, got 0"),
        (["--n", "2", "--profile"], "--n: cannot be combined with --profile or --trace"),
    ):
        try:
            status = main(["generate", "x", "--model", "absent", *words])
        except SystemExit as error:  # of the parser
            status = error.code
        assert status == 2, words
        assert message in capsys.readouterr().err


def test_a_trace_of_a_reply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.json"
    command = ["generate", "Once upon a time", "--max-tokens", "3", "--trace"]
    assert main([*command, str(trace)]) == 0
    assert capsys.readouterr().err == ""  # the table is for --profile
    names = [entry["name"] for entry in read_trace(trace) if entry.get("cat") == "replay"]
    assert names == ["4 tokens", "1 token", "1 token"]
    assert main([*command, str(tmp_path / "missing" / "trace.json"), "--model", "absent"]) == 1
    assert "missing: expected a folder to write to, found none" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # a superuser may write to all
    assert main([*command, str(trace), "--model", "absent"]) == 1
    assert f"{tmp_path}: cannot be written: it is read-only" in capsys.readouterr().err


def test_options_that_are_not_given_are_the_models_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_model(tmp_path / "model", layers=2, do_sample=True, temperature=3.0))
    model = pyturbo.load(folder)
    command = ["generate", "Hello", "--raw", "--model", folder, "--max-tokens", "8", "--seed", "2"]
    for words, options in (([], {"temperature": 3.0}), (["--temperature", "0"], {"temperature": 0})):
        assert main([*command, *words]) == 0
        assert capsys.readouterr().out == model.generate("Hello", 8, seed=2, **options).text + "\n"
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "(default: the model's own, else 0.0)" in shown
    assert "of the random numbers (default: a new one each time)" in shown


def test_wrong_usage_is_seen_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyturbo.cli._model.load", lambda *arguments, **options: pytest.fail("it is loaded"))
    for words, message in (
        (["--top-p", "7"], "pyturbo: --top-p: expected a number above 0 and at most 1, got 7"),
        (["--temperature", "-1"], "pyturbo: --temperature: expected a finite number from 0 on, got -1"),
        (["--max-tokens", "-1"], "pyturbo: --max-tokens: expected an integer from 1 on, got -1"),
        (["--max-tokens", "0"], "pyturbo: --max-tokens: expected an integer from 1 on, got 0"),
        (["--stop", ""], "pyturbo: --stop: expected a list of texts that are not empty"),
        (["--kv", "f8"], "pyturbo: --kv: expected one of f32, f16, turbo<k> and"),
        (["--kv", "f8"], "with k and v of 2, 3, 4, 6 and 8 bits, got 'f8'"),
        (["--seed", "-1"], "pyturbo: --seed: expected an integer from 0 on, got -1"),
        (["--threads", "2000"], "pyturbo: --threads: expected at most 1024, got 2000"),
        (["--device", "gpu"], "gpu"),
        (["--threads", "0"], "--threads: expected an integer from 1 on, got 0"),
        (["--context", "0"], "--context: expected an integer from 1 on, got 0"),
        (["--json", "--logprobs", "-1"], "pyturbo: --logprobs: expected an integer from 0 on, got -1"),
        (["--logprobs", "2"], "--logprobs: expected --json with it"),
        (["--raw", "--system", "y"], "--system: cannot be combined with --raw"),
    ):
        assert main(["generate", "x", *words]) == 2, words
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.count("\n") == 1
        assert shown.endswith("; see pyturbo generate --help\n")


def test_a_model_in_place_of_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyturbo.cli._model.load", lambda *arguments, **options: pytest.fail("it is loaded"))
    file = tmp_path / "model.gguf"
    file.touch()
    assert main(["generate", str(file)]) == 2
    message = f"pyturbo: expected a prompt, got the name of a file; is it the model? --model {file}; see"
    assert capsys.readouterr().err.startswith(message)


def test_generate_reads_standard_input(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    command = [
        sys.executable,
        "-m",
        "pyturbo",
        "generate",
        "--model",
        str(folder),
        "--raw",
        "--max-tokens",
        "3",
    ]
    done = subprocess.run(command, cwd=tmp_path, input="Hello", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == pyturbo.load(folder).generate("Hello", max_tokens=3).text + "\n"


def test_an_interrupt_ends_generate(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    command = [sys.executable, "-m", "pyturbo", "generate", "Hello", "--model", str(folder), "--raw"]
    with subprocess.Popen(
        [*command, "--max-tokens", "500"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may have had it ignored
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = process.stdout.read(1)  # it writes
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == b""
    assert (shown + rest).endswith(b"\n")
    assert len(rest) < 1000
