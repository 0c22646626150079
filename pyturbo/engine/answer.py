"""Where the answer of a reply begins, after thoughts."""

from __future__ import annotations

from pyturbo.text.dialects import Reasoning, ReplyParser, Text


class Answer:
    """Divides the text of a reply into what is before its answer, thoughts and their markers, and the answer.

    Text that may be either is held back until that is known; white space before an answer is not part of it.
    """

    def __init__(self, parser: ReplyParser | None) -> None:
        """Take a parser of the reply; without one all of it is the answer."""
        self._parser = parser
        self._held, self._place = "", 0  # text that is not divided yet, and where it begins

    def divide(self, piece: str) -> tuple[str, str]:
        """Return what is certain with the next piece: text before the answer, and text of it."""
        if self._parser is None:
            return "", piece
        taken, self._held = self._parser.taken, self._held + piece
        parts = self._parser.add(piece)
        first = next((part for part in parts if not isinstance(part, Reasoning)), None)
        if first is None:
            before = self._take(self._parser.taken)
            blank = len(self._held) - len(self._held.lstrip())
            return before + self._take(self._place + blank), ""
        self._parser = None
        before = self._take(first.span[0] if isinstance(first, Text) else taken)
        return before, self.finish()

    def finish(self) -> str:
        """Return the text that was held back, as the reply ends."""
        held, self._held = self._held, ""
        return held

    def _take(self, end: int) -> str:
        """Return the text up to a place of the reply."""
        count = max(0, end - self._place)
        taken, self._held = self._held[:count], self._held[count:]
        self._place += count
        return taken
