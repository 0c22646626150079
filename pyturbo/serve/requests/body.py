"""Bodies of requests, within limits."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from pyturbo._messages import shown
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings

Body = TypeVar("Body", bound="Fields")

_GIVEN = "pyturbo.given"  # the key in the scope of a request
_QUICK_BYTES = 1 << 16  # that are parsed without holding others up
#: The kind of a value that may be of several, in the place of an error.
_KIND = re.compile(r"str|int|float|bool|\w+\[.*\]")


class Fields(BaseModel):
    """The fields of a request. Those that are not listed are refused, unless they change no reply."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


async def read_body(request: Request, kind: type[Body], settings: Settings, *ignored: str) -> Body:
    """Return the body of a request, checked. `ignored` are fields that change no reply; null is no value."""
    data = await read_all(request, settings)
    if len(data) <= _QUICK_BYTES:
        fields = _checked(data, kind, settings.json_depth, ignored)
    else:
        fields = await asyncio.to_thread(_checked, data, kind, settings.json_depth, ignored)
    request.scope[_GIVEN] = fields.model_fields_set
    return fields


def given_fields(scope: Scope) -> Collection[str]:
    """Return the names of the fields that a request has, once `read_body` has read them."""
    given: Collection[str] = scope.get(_GIVEN, ())
    return given


async def read_all(request: Request, settings: Settings) -> bytes:
    """Return all bytes of the body, within the limits of size and time."""
    most = settings.body_bytes
    too_large = RequestError("request_too_large", f"body: expected at most {most} bytes, got more")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large
    pieces = bytearray()

    async def collect() -> None:
        async for piece in request.stream():
            pieces.extend(piece)
            if len(pieces) > most:
                raise too_large

    try:
        await asyncio.wait_for(collect(), settings.body_seconds)
    except asyncio.TimeoutError:
        message = f"body: expected all of it within {settings.body_seconds:g} seconds"
        raise RequestError("invalid_request_error", message, status=408) from None
    except ClientDisconnect:
        raise RequestError("invalid_request_error", "body: the client went away") from None
    return bytes(pieces)


def _checked(data: bytes, kind: type[Body], depth: int, ignored: tuple[str, ...]) -> Body:
    try:
        value = json.loads(data, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise _too_deep(depth) from None
    except ValueError as error:
        raise RequestError("invalid_request_error", f"body: expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("invalid_request_error", "body: expected a JSON object")
    if _deeper(value, depth):
        raise _too_deep(depth)
    if b"\\u" in data:
        _require_characters(value)
    try:
        given = {name: part for name, part in value.items() if part is not None and name not in ignored}
        return kind.model_validate(given)
    except ValidationError as error:
        raise _refusal(error) from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _require_characters(value: Any) -> None:
    """Refuse texts with one half of a surrogate pair, which escapes can spell."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        message = "body: expected Unicode text, got one half of a surrogate pair"
        raise RequestError("invalid_request_error", message) from None


def _too_deep(depth: int) -> RequestError:
    return RequestError(
        "invalid_request_error", f"body: expected at most {depth} levels of nesting, got more"
    )


def _deeper(value: Any, depth: int) -> bool:
    """Return whether a value has more levels than `depth`."""
    level = [value]
    for _ in range(depth):
        level = [
            part
            for item in level
            for part in (item.values() if isinstance(item, Mapping) else item)
            if isinstance(part, (Mapping, list))
        ]
        if not level:
            return False
    return True


def _refusal(error: ValidationError) -> RequestError:
    """Name the first field that is wrong, what was expected of it, and what was found."""
    first = error.errors(include_url=False)[0]
    places = [str(place) for place in first["loc"]]
    unknown = first["type"] == "extra_forbidden"  # whose name may be any
    where = ".".join(place for place in places if unknown or not _KIND.fullmatch(place)) or "body"
    if unknown:
        return RequestError("invalid_request_error", f"{where}: this field is not supported", param=where)
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] != "missing" and ", got " not in message:
        message += f", got {shown(first['input'])}"
    return RequestError("invalid_request_error", f"{where}: {message[:1].lower()}{message[1:]}", param=where)
