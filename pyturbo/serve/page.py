"""The page at `/`: its files, which are part of the package, and how a browser is told to treat them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

#: Content types by the ending of a file. A file with another ending is not served.
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

#: Everything comes from this server, no script or style stands in the page itself, and none frames it.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

HEADERS = {
    # A browser keeps the files and asks each time whether they are current: an upgrade is seen at once.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class File:
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str

    def answer(self, request: Request) -> Response:
        """Return the file, or that the browser's copy of it is current."""
        headers = {**HEADERS, "ETag": self.etag}
        known = [
            tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")
        ]
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_files() -> dict[str, File]:
    """Read the files of the page from the installed package, by name.

    Examples:
        >>> from pyturbo.serve.page import read_files
        >>> read_files()["index.html"].media_type
        'text/html; charset=utf-8'
    """
    found = {}
    for entry in files("pyturbo.serve").joinpath("page").iterdir():
        media_type = TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None and entry.is_file():
            content = entry.read_bytes()
            found[entry.name] = File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def routes() -> list[Route]:
    """Return the routes `/` and `/page/<file>`, one for each file that there is.

    Examples:
        >>> from pyturbo.serve.page import routes
        >>> [route.path for route in routes()][:2]
        ['/', '/page/announcer.js']
    """
    found = read_files()
    paths = {"/": found.pop("index.html"), **{f"/page/{name}": found[name] for name in sorted(found)}}
    return [_route(path, file) for path, file in paths.items()]


def _route(path: str, file: File) -> Route:
    async def answer(request: Request) -> Response:
        return file.answer(request)

    return Route(path, answer, methods=["GET"])
