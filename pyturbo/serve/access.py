"""Who may use a server: hosts, origins and keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings

#: Paths that need no key: the page asks for it, and whoever watches the server has none.
_OPEN = ("/", "/health")

#: Ports that browsers leave out, by scheme.
_PORTS = {"http": ":80", "https": ":443"}


class Keys:
    """The keys of a server. Comparing takes the same time for all of them, right or wrong.

    Examples:
        >>> from pyturbo.serve.access import Keys
        >>> keys = Keys(["secret"])
        >>> keys.allow("secret"), keys.allow("Secret"), Keys([]).allow("")
        (True, False, True)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def allow(self, key: str) -> bool:
        """Return whether a key is one of them; without any, all are."""
        given = _digest(key)
        found = [hmac.compare_digest(given, digest) for digest in self._digests]
        return not found or any(found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Access:
    """Refuses requests that come under another name, from pages of other sites, or without a key."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings, self._keys = app, settings, Keys(settings.keys)
        self._hosts = {_name(host) or host.strip("[]").lower() for host in settings.hosts}
        self._origins = {*allowed_origins(settings)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self.check(scope["method"], route_path(scope), Headers(scope=scope))
            except RequestError as error:
                await error.response(route_path(scope), self._settings.retry_seconds)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse a request that may not be made."""
        host, expected = headers.get("host", ""), ", ".join(self._settings.hosts)
        if self._hosts and _name(host) not in self._hosts:
            raise RequestError("permission_error", f"host: expected one of {expected}, got {host!r}")
        origin = headers.get("origin")
        if origin is not None and not self._allows(origin, host):
            raise RequestError("permission_error", f"origin: pages of {origin} may not use this server")
        if method == "OPTIONS" or path in _OPEN or path.startswith("/page/"):
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip(" \t") if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        # Headers are bytes, which clients make by UTF-8 or by Latin-1; `key` has the second reading.
        allowed = [self._keys.allow(reading) for reading in (_in_utf8(key), key)]
        if not any(allowed):
            state = "another one" if key else "none"
            message = f"expected an API key of this server in Authorization or x-api-key, got {state}"
            raise RequestError("authentication_error", message, code="invalid_api_key")

    def _allows(self, origin: str, host: str) -> bool:
        own = bool(host) and origin.partition("://")[2].lower() == host.lower()
        return own or "*" in self._origins or origin.lower() in self._origins


def allowed_origins(settings: Settings) -> list[str]:
    """Return the origins of pages that may use a server, spelled as browsers send them.

    Examples:
        >>> from pyturbo.serve import Settings
        >>> from pyturbo.serve.access import allowed_origins
        >>> allowed_origins(Settings(origins=["https://Example.org/", "http://localhost:80"]))
        ['https://example.org', 'http://localhost']
    """
    spelled = [origin.rstrip("/").lower() for origin in settings.origins]
    return [origin.removesuffix(_PORTS.get(origin.partition("://")[0], "")) for origin in spelled]


def route_path(scope: Scope) -> str:
    """Return the path of a request within the application, wherever that is mounted."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _in_utf8(value: str) -> str:
    """Return a header that was read as Latin-1 as UTF-8 has it. Bytes that are none stay apart from text."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")


def _name(host: str) -> str:
    """Return the name of a host, without a port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
