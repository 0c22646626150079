"""Reasons for figures that are missing."""

from __future__ import annotations

from pyturbo.errors import TurboError


def reason(error: Exception) -> str:
    """Return what an error says in one line; those of other libraries with their type."""
    text = str(error).partition("\n")[0]
    return text if isinstance(error, TurboError) else f"{type(error).__name__}: {text}"
