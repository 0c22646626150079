"""Stop strings: a text ends at the first of several strings, while it is being generated."""

from __future__ import annotations

from collections.abc import Sequence

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError


class StopStrings:
    """Cut a text at the stop string that starts first; if several start there, at the shortest.

    Text is held back only while it may be the beginning of a stop string. So it is shorter than the longest
    of them, and the result does not depend on how the text was divided.

    Attributes:
        found: The stop string at which the text has ended; None while it has not.

    Examples:
        >>> from pyturbo.text import StopStrings
        >>> stops = StopStrings(["THE END"])
        >>> stops.add("Goodbye. THE")
        ('Goodbye. ', False)
        >>> stops.add(" END and more")
        ('', True)
        >>> stops.found
        'THE END'
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not isinstance(stops, Sequence) or isinstance(stops, str) or not all(map(_is_text, stops)):
            raise ArgumentError(f"stop: expected a list of texts that are not empty, got {shown(stops)}")
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    def __repr__(self) -> str:
        return f"StopStrings({list(self._stops)}{', stopped' if self.stopped else ''})"

    def __bool__(self) -> bool:
        """Return whether there are stop strings."""
        return bool(self._stops)

    @property
    def stopped(self) -> bool:
        """Whether the text has ended at a stop string."""
        return self.found is not None

    def add(self, text: str) -> tuple[str, bool]:
        """Return the text that can be shown, and whether it ended at a stop string; later text is dropped."""
        if self.stopped:
            return "", True
        text = self._held + text
        match, begun = self._first_match(text), self._first_beginning(text)
        if match < len(text) and match <= begun:
            return self._stop(text, match), True
        self._held = text[begun:]
        return text[:begun], False

    def finish(self) -> str:
        """Return the text held back, up to a stop string if it has one (then `stopped` is set)."""
        text, self._held = self._held, ""
        match = self._first_match(text)
        return self._stop(text, match) if match < len(text) else text

    def _stop(self, text: str, place: int) -> str:
        """Return the text before a place where a stop string starts."""
        self.found = min((stop for stop in self._stops if text.startswith(stop, place)), key=len)
        self._held = ""
        return text[:place]

    def _first_match(self, text: str) -> int:
        """Return where the first stop string starts; the length of the text if there is none."""
        places = (text.find(stop) for stop in self._stops)
        return min((place for place in places if place >= 0), default=len(text))

    def _first_beginning(self, text: str) -> int:
        """Return where the longest end of the text starts that is an incomplete stop string."""
        for place in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[place:]
            if any(stop.startswith(end) and stop != end for stop in self._stops):
                return place
        return len(text)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
