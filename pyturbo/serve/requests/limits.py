"""How many texts a request may give, each of which costs time at every token."""

from __future__ import annotations

_STOPS, _LONGEST_STOP = 64, 256  # stop strings, which each token is compared with


def few_stops(stop: str | list[str] | None) -> str | list[str] | None:
    """Return the stop strings of a request. More than a server takes are a ValueError."""
    require_few([stop] if isinstance(stop, str) else stop or [], _STOPS, _LONGEST_STOP)
    return stop


def require_few(texts: list[str], most: int, longest: int) -> None:
    """Refuse more than `most` texts, and texts of more than `longest` characters, with a ValueError."""
    if len(texts) > most or any(len(text) > longest for text in texts):
        raise ValueError(f"expected at most {most} texts of at most {longest} characters")
