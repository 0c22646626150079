"""Errors of models and engines, by the names that fields have in requests."""

from __future__ import annotations

import pytest

from pyturbo.checkpoint.origin import ChangedFileError
from pyturbo.errors import ArgumentError, ContextError, FileError, StateError, TurboError
from pyturbo.serve.requests.request_error import request_error_of

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@pytest.mark.parametrize(
    ("error", "path", "given", "message", "param"),
    [
        (ArgumentError("top_k: expected x"), CHAT, "top_k", "top_k: expected x", "top_k"),
        (ArgumentError("top_k: expected x"), CHAT, "messages", "top_k: expected x", None),
        (ArgumentError("logit_bias: token: no"), CHAT, "logit_bias", "logit_bias: token: no", "logit_bias"),
        (ArgumentError("prompt: none"), MESSAGES, "messages", "messages: none", "messages"),
        (
            ArgumentError("stop: expected x"),
            MESSAGES,
            "stop_sequences",
            "stop_sequences: expected x",
            "stop_sequences",
        ),
        (ArgumentError("chat: the template: x"), CHAT, "messages", "chat: the template: x", None),
        (ContextError("prompt: is full"), RESPONSES, "input", "input: is full", "input"),
        (StateError("grammar: stuck"), CHAT, "messages grammar", "grammar: stuck", "grammar"),
        (StateError("grammar: stuck"), CHAT, "messages tools", "tools: stuck", "tools"),
        (
            StateError("schema: stuck"),
            RESPONSES,
            "input text",
            "text.format.schema: stuck",
            "text.format.schema",
        ),
        (StateError("schema: stuck"), "/v1/completions", "prompt", "schema: stuck", None),
    ],
)
def test_an_error_names_fields_that_the_request_has(
    error: TurboError, path: str, given: str, message: str, param: str | None
) -> None:
    found = request_error_of(error, path, given.split())
    assert (found.kind, str(found), found.param) == ("invalid_request_error", message, param)


def test_only_files_that_changed_are_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    """Neither tells a client where files are; both tell whoever reads the log."""
    changed = request_error_of(ChangedFileError("/models/a: was written to"), CHAT)
    assert (changed.status, changed.code) == (503, "model_changed")
    broken = request_error_of(FileError("/models/b: cannot be read"), CHAT)
    assert (broken.status, broken.code) == (500, None)
    assert "/models" not in f"{changed} {broken}"
    assert "/models/a" in caplog.text
    assert "/models/b" in caplog.text
