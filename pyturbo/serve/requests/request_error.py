"""Requests that fail, and how each client expects to be told."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Any

from starlette.responses import JSONResponse

from pyturbo.checkpoint.origin import ChangedFileError
from pyturbo.errors import (
    AllocationError,
    ArgumentError,
    BusyError,
    ContextError,
    FormatError,
    StateError,
)
from pyturbo.text.constraint import CONSTRAINTS

log = logging.getLogger("pyturbo.serve")

#: What went wrong, with the status of a response; the names are Anthropic's.
STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "api_error": 500,
    "overloaded_error": 503,
}
#: OpenAI's names, where they are others.
_OPENAI = {
    "permission_error": "invalid_request_error",
    "not_found_error": "invalid_request_error",
    "request_too_large": "invalid_request_error",
    "api_error": "server_error",
    "overloaded_error": "server_error",
}

_ANTHROPIC = {
    "prompt": "messages",
    "submit": "messages",
    "stop": "stop_sequences",
    "schema": "output_config.format.schema",
    "grammar": "tools",
}
#: The fields of requests for a path by the names that errors of a model or an engine have for them.
_FIELDS = {
    "/v1/chat/completions": {
        "prompt": "messages",
        "submit": "messages",
        "count": "n",
        "schema": "response_format.json_schema.schema",
        "grammar": "tools",
    },
    "/v1/completions": {"submit": "prompt", "count": "n"},
    "/v1/responses": {
        "prompt": "input",
        "submit": "input",
        "max_tokens": "max_output_tokens",
        "schema": "text.format.schema",
        "grammar": "tools",
    },
    "/v1/messages": _ANTHROPIC,
    "/v1/messages/count_tokens": _ANTHROPIC,
    "/v1/embeddings": {"prompt": "input", "texts": "input"},
}

#: How errors begin: with the name of what is wrong, and maybe that of a function or an argument before it.
_NAMES = re.compile(r"(?:(\w+): )?(\w+)(?=: )")

#: How the error of a reply begins whose constraint exceeds a limit on its way.
_OF_A_CONSTRAINT = re.compile(rf"({'|'.join(CONSTRAINTS)}): ")


class RequestError(Exception):
    """A request that is not carried out.

    Attributes:
        kind: One of `STATUS`.
        param: The field that is wrong.
        code: A word for programs.
    """

    def __init__(
        self, kind: str, message: str, *, param: str | None = None, code: str | None = None, status: int = 0
    ) -> None:
        """`status` is that of the response, if it is another than that of its kind."""
        super().__init__(message)
        self.kind, self.param, self.code = kind, param, code
        self.status = status or STATUS[kind]

    def openai(self) -> dict[str, Any]:
        """Return the body that clients of OpenAI expect."""
        kind = _OPENAI.get(self.kind, self.kind)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def anthropic(self) -> dict[str, Any]:
        """Return the body that clients of Anthropic expect."""
        return {"type": "error", "error": {"type": self.kind, "message": str(self)}}

    def response(self, path: str, retry_seconds: int) -> JSONResponse:
        """Return the response to a request for a path. A client that should come back is told when."""
        headers = {"Retry-After": str(retry_seconds)} if self.status in (429, 503) else None
        if self.status == 401:
            headers = {"WWW-Authenticate": "Bearer"}
        return JSONResponse(self.body(path), self.status, headers)

    def body(self, path: str) -> dict[str, Any]:
        """Return the body that clients of a path expect."""
        return self.anthropic() if path.startswith("/v1/messages") else self.openai()


def request_error_of(error: BaseException, path: str, given: Collection[str] = ()) -> RequestError:
    """Return the error that an exception is, for a path. One that nobody expected is written to the log.

    `given` are the fields that the request has: an error names none but these.
    """
    if isinstance(error, RequestError):
        return error
    message, field = _by_field(str(error), path, given)
    if isinstance(error, ContextError):
        return RequestError("invalid_request_error", message, code="context_length_exceeded", param=field)
    if isinstance(error, (ArgumentError, FormatError)):
        return RequestError("invalid_request_error", message, param=field)
    if isinstance(error, BusyError):
        return RequestError("overloaded_error", "too many requests wait already", code="queue_full")
    if isinstance(error, ChangedFileError):
        log.warning("the model is loaded again: %s", error)
        return RequestError("overloaded_error", "the files of the model changed", code="model_changed")
    if isinstance(error, AllocationError):
        return RequestError("overloaded_error", str(error), code="out_of_memory")
    if isinstance(error, StateError) and _OF_A_CONSTRAINT.match(str(error)):
        return RequestError("invalid_request_error", message, param=field)
    if isinstance(error, StateError):
        return RequestError("overloaded_error", str(error), code="shutting_down")
    log.error("a request failed", exc_info=error)
    return RequestError("api_error", f"internal error: {type(error).__name__}")


def _by_field(message: str, path: str, given: Collection[str]) -> tuple[str, str | None]:
    """Return a message with the name that the field has in requests for a path, and that field, if any."""
    found = _NAMES.match(message)
    if found is None:
        return message, None
    for group in (2, 1):
        name = found[group] or ""
        for field in (name, _FIELDS.get(path, {}).get(name, "")):
            if field.partition(".")[0] in given:
                own = message[found.start(group) :] if field == name else field + message[found.end() :]
                return own, field
    return message, None
