"""Draw which experts were chosen, and how often each of them was in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyturbo.bench.svg import Colour, Svg, code, mixed
from pyturbo.streaming.memory import ExpertRead

#: Colours from misses only to hits only.
_COLOURS: tuple[Colour, ...] = ((214, 93, 32), (193, 98, 84), (146, 98, 140), (84, 92, 166), (24, 90, 168))
_WHITE: Colour = (255, 255, 255)
_USES = (0.0, 0.5, 1.0, 2.0)  # times the average: from there on a cell has the next of the shades
_SHADES = (0.35, 0.55, 0.78, 1.0)

_LEFT, _TOP, _RIGHT, _BOTTOM = 74, 48, 48, 46
_WIDTH = 900  # of all experts
_UNUSED = "#f1f1f1"


@dataclass(frozen=True)
class ExpertMap:
    """Of each layer and expert: how many tokens chose it, and how often it had to be read for them."""

    layers: tuple[str, ...]
    uses: tuple[NDArray[np.int64], ...]
    reads: tuple[NDArray[np.int64], ...]

    @staticmethod
    def of(
        layers: Sequence[str],
        before: Sequence[NDArray[np.uint32]],
        after: Sequence[NDArray[np.uint32]],
        reads: Sequence[ExpertRead],
    ) -> ExpertMap:
        """Return what steps chose that changed the counts of choices, and read these records."""
        uses = tuple((now - then).astype(np.int64) for then, now in zip(before, after))
        read = tuple(np.zeros_like(row) for row in uses)
        for record in reads:
            read[record.layer][record.expert] += 1
        return ExpertMap(tuple(layers), uses, read)

    def hits(self, layer: int) -> NDArray[np.int64]:
        """Return how often each expert of a layer was in memory when a token chose it."""
        hits: NDArray[np.int64] = np.maximum(0, self.uses[layer] - self.reads[layer])
        return hits


def draw(found: ExpertMap, tokens: int, share: float) -> str:
    """Return a picture: a row for each layer, in it the experts from the most to the least used.

    Colour says how many of the uses were hits, brightness how many uses there were.
    """
    width = max(2, _WIDTH // max(len(row) for row in found.uses))
    height = max(5, min(18, 380 // len(found.layers)))
    columns = width * max(len(row) for row in found.uses)
    bottom = _TOP + height * len(found.layers)
    picture = Svg(_LEFT + columns + _RIGHT, bottom + _BOTTOM, "Hits by layer and expert")
    needed = sum(int(row.sum()) for row in found.uses)
    hits = sum(int(found.hits(i).sum()) for i in range(len(found.layers)))
    picture.text(_LEFT, 18, f"Experts that {tokens} tokens chose, with room for {share:.0%} of them", size=14)
    picture.text(_LEFT, 36, "each row from the most to the least used expert of a layer")
    picture.text(_LEFT + columns + 4, 36, "hits")
    cells: dict[str, list[tuple[float, float, float]]] = {}
    for i, name in enumerate(found.layers):
        y = _TOP + i * height
        _add_row(cells, found.uses[i], found.hits(i), y, width)
        if i % max(1, -(-11 // height)) == 0:
            rate = found.hits(i).sum() / max(1, found.uses[i].sum())
            picture.text(_LEFT - 6, y + height - 1, name, "end", 10)
            picture.text(_LEFT + columns + 4, y + height - 1, f"{rate:.0%}", size=10)
    for colour, row in cells.items():
        picture.cells(row, height - 1, colour)
    _add_legend(picture, bottom + 18, f"{hits / max(1, needed):.0%} of {needed} uses were hits")
    return str(picture)


def _add_row(
    cells: dict[str, list[tuple[float, float, float]]],
    uses: NDArray[np.int64],
    hits: NDArray[np.int64],
    y: float,
    width: float,
) -> None:
    """Add the cells of a layer by colour; neighbours of one colour become one."""
    order, average = np.lexsort((-hits, -uses)), float(uses.mean())
    for place, expert in enumerate(order):
        colour = _colour(int(uses[expert]), int(hits[expert]), average)
        row = cells.setdefault(colour, [])
        if row and row[-1][1] == y and row[-1][0] + row[-1][2] == _LEFT + place * width:
            row[-1] = row[-1][0], y, row[-1][2] + width
        else:
            row.append((_LEFT + place * width, y, width))


def _colour(uses: int, hits: int, average: float) -> str:
    if uses == 0:
        return _UNUSED
    shade = _SHADES[sum(uses >= least * average for least in _USES) - 1]
    return code(mixed(_WHITE, _COLOURS[round(hits / uses * (len(_COLOURS) - 1))], shade))


def _add_legend(picture: Svg, y: float, text: str) -> None:
    picture.text(_LEFT, y + 9, "all misses", size=10)
    for i, colour in enumerate(_COLOURS):
        picture.rect(_LEFT + 58 + i * 14, y, 13, 11, code(colour))
    picture.text(_LEFT + 134, y + 9, "all hits", size=10)
    picture.text(_LEFT + 210, y + 9, "never used", size=10)
    picture.rect(_LEFT + 268, y, 13, 11, _UNUSED)
    for i, shade in enumerate(_SHADES):
        picture.rect(_LEFT + 282 + i * 14, y, 13, 11, code(mixed(_WHITE, _COLOURS[-1], shade)))
    picture.text(_LEFT + 344, y + 9, "twice the average or more", size=10)
    picture.text(_LEFT + 500, y + 9, text, size=10)
