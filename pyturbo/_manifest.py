"""The manifest that the kernel front end wrote at build time."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pyturbo._paths import PACKAGE


@cache
def _manifest() -> dict[str, Any]:
    text = (PACKAGE / "manifest.json").read_text(encoding="utf-8")
    return {kernel["name"]: kernel for kernel in json.loads(text)["kernels"]}


def kernels() -> dict[str, Any]:
    """Return every kernel by name: arguments with types, shapes and access, contract and comment.

    Examples:
        >>> kernel = pyturbo.kernels()["swiglu"]
        >>> [argument["name"] for argument in kernel["arguments"]]
        ['gate', 'up', 'y', 'count']
        >>> kernel["contract"]["requires"]
        ['count > 0']
    """
    return dict(_manifest())
