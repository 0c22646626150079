"""A few shapes of SVG. Pictures refer to nothing outside themselves."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

Colour = tuple[int, int, int]

_FONT = "ui-sans-serif, 'DejaVu Sans', Helvetica, Arial, sans-serif"


class Svg:
    """Shapes on a white ground, in pixels from the upper left corner."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'font-family={quoteattr(_FONT)} font-size="11" fill="#333">\n<title>{escape(title)}</title>'
        )
        self._parts = [f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>']

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, title: str | None = None
    ) -> None:
        """Add a rectangle; a reader who points at it sees its title."""
        shape = f'<rect x="{x:.6g}" y="{y:.6g}" width="{width:.6g}" height="{height:.6g}" fill="{fill}"'
        self._parts.append(
            f"{shape}/>" if title is None else f"{shape}><title>{escape(title)}</title></rect>"
        )

    def cells(self, cells: list[tuple[float, float, float]], height: float, fill: str) -> None:
        """Add rectangles of one height and colour, given as x, y and width."""
        path = "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z" for x, y, width in cells)
        self._parts.append(f'<path fill="{fill}" d="{path}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<path stroke="#ccc" d="M{x1:.6g} {y1:.6g}L{x2:.6g} {y2:.6g}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: float = 11) -> None:
        """Add text whose base line is at `y`; `anchor` says which part of it is at `x`."""
        place = f'<text x="{x:.6g}" y="{y:.6g}" font-size="{size:g}" text-anchor="{anchor}"'
        self._parts.append(f"{place}>{escape(text)}</text>")

    def __str__(self) -> str:
        return "\n".join([self._head, *self._parts, "</svg>\n"])


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """Return the colour between two, with `share` of the other one."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other))
    return red, green, blue


def code(colour: Colour) -> str:
    """Return a colour as SVG writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
