"""Finding the end of a JSON object, list or string while it arrives."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r'[{}\[\]"]|[^\w\s,:.+-]')  # brackets, quotes, and what JSON has in strings only
_INSIDE = re.compile(r'\\(?:.|\Z)|"', re.DOTALL)


class JsonEnd:
    """Finds where a value ends. It does not check more than brackets, quotes and characters.

    Attributes:
        place: The end of the text that belongs to the value so far.
        ended: Whether the value is whole.
        broken: Whether a character follows that no JSON has there.

    Examples:
        >>> from pyturbo.text.dialects.json_end import JsonEnd
        >>> end = JsonEnd()
        >>> end.read('{"a": "}')
        >>> end.read('{"a": "}"} and more')
        >>> end.place, end.ended
        (10, True)
    """

    def __init__(self, start: int = 0) -> None:
        """Begin at the opening bracket or quote."""
        self.place, self.ended, self.broken = start, False, False
        self._depth, self._in_string = 0, False

    def read(self, text: str) -> None:
        """Go on in a text, which begins as it did before and is longer now."""
        while not self.ended and not self.broken:
            match = (_INSIDE if self._in_string else _OUTSIDE).search(text, self.place)
            if match is None:
                self.place = len(text)
                return
            found = match[0]
            if found == "\\":  # what is escaped has not arrived
                self.place = match.start()
                return
            if found == '"':
                self._in_string = not self._in_string
            elif found in "{[":
                self._depth += 1
            elif found in "}]":
                self._depth -= 1
            elif not self._in_string:
                self.place, self.broken = match.start(), True
                return
            self.place = match.end()
            self.ended = self._depth == 0 and not self._in_string
