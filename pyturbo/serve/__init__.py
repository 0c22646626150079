"""The APIs that clients speak, over HTTP. It needs the extra `serve`."""

from __future__ import annotations

from pyturbo.serve.app import create_app
from pyturbo.serve.settings import Settings
from pyturbo.serve.shelf import Shelf, Source

__all__ = ["Settings", "Shelf", "Source", "create_app"]
