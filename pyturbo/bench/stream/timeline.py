"""Draw a replay: what was computed, when it waited, and what was read meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from pyturbo._messages import size
from pyturbo.bench.svg import Svg
from pyturbo.engine.timeline import ProfileEvent, covered, lanes, of_kind

_LEFT, _TOP, _WIDTH, _RIGHT = 74, 48, 900, 20
_ROW, _LANE = 22, 9  # heights
_LEGEND = 34

_COLOURS = {
    "attention": "#59a89c",
    "experts": "#3d6fa5",
    "other": "#b8b8b8",
    "wait": "#d1495b",
    "read": "#f0a202",
    "ahead": "#e6d36a",
}
_TICKS = (1, 2, 5)  # times a power of ten


def draw(events: Sequence[ProfileEvent]) -> str:
    """Return a picture of the last replay among the events of a profile."""
    replay = of_kind(events, "replay")[-1]
    shown = [e for e in events if e.kind != "replay" and e.end > replay.begin and e.begin < replay.end]
    reads = of_kind(shown, "read")
    rows = lanes(reads)
    bottom = _TOP + 2 * _ROW + _LANE * len(rows) + 8
    picture = Svg(_LEFT + _WIDTH + _RIGHT, bottom + 20 + _LEGEND, "Launches and reads on one timeline")
    busy = covered(reads, [replay]) / replay.seconds
    waited = sum(event.seconds for event in of_kind(shown, "wait")) / replay.seconds
    nbytes = sum(read.nbytes for read in reads)
    picture.text(
        _LEFT,
        18,
        f"{replay.name}: {replay.seconds * 1e3:.1f} ms, {len(reads)} reads of {size(nbytes)}",
        size=14,
    )
    picture.text(
        _LEFT, 36, f"a read was under way {busy:.0%} of the time; launches waited {waited:.0%} of it"
    )
    scale = _WIDTH / replay.seconds
    _add_axis(picture, bottom, replay.seconds, scale)

    def add(event: ProfileEvent, y: float, height: float, colour: str, title: str) -> None:
        begin, end = max(event.begin, replay.begin), min(event.end, replay.end)
        x = _LEFT + (begin - replay.begin) * scale
        picture.rect(x, y, max(0.3, (end - begin) * scale), height, _COLOURS[colour], title)

    for name, row in (("launches", 0), ("waits", 1)):
        picture.text(_LEFT - 6, _TOP + row * _ROW + 14, name, "end")
    for block in _blocks(of_kind(shown, "launch")):
        add(block, _TOP, _ROW - 4, _part(block.place), _title(block, block.place))
    for wait in of_kind(shown, "wait"):
        add(wait, _TOP + _ROW, _ROW - 4, "wait", _title(wait, f"{wait.place}: {wait.name}"))
    for number, lane in enumerate(rows):
        y = _TOP + 2 * _ROW + number * _LANE
        for read in lane:
            add(
                read,
                y,
                _LANE - 1,
                "ahead" if read.ahead else "read",
                _title(read, f"{read.place} {read.name}"),
            )
    if rows:
        picture.text(_LEFT - 6, _TOP + 2 * _ROW + 9, "reads", "end")
    _add_legend(picture, bottom + 26)
    return str(picture)


def _blocks(launches: Sequence[ProfileEvent]) -> list[ProfileEvent]:
    """Return launches that follow each other in one part of a layer as one event."""
    blocks: list[ProfileEvent] = []
    for launch in launches:
        if blocks and blocks[-1].place == launch.place and launch.begin - blocks[-1].end < 5e-6:
            blocks[-1] = blocks[-1]._replace(end=launch.end)
        else:
            blocks.append(launch)
    return blocks


def _part(place: str) -> str:
    kind = place.rpartition(".")[2]
    return "attention" if kind.endswith("attn") else "experts" if kind == "mlp" else "other"


def _title(event: ProfileEvent, what: str) -> str:
    return f"{what}, {event.seconds * 1e3:.3f} ms"


def _add_axis(picture: Svg, bottom: float, seconds: float, scale: float) -> None:
    unit = 1e-6
    while not any(seconds / (unit * factor) <= 12 for factor in _TICKS):
        unit *= 10
    step = next(unit * factor for factor in _TICKS if seconds / (unit * factor) <= 12)
    for i in range(int(seconds / step) + 1):
        x = _LEFT + i * step * scale
        picture.line(x, _TOP, x, bottom)
        picture.text(x, bottom + 13, f"{i * step * 1e3:g} ms", "middle", 10)


def _add_legend(picture: Svg, y: float) -> None:
    names = {"other": "other launches", "wait": "waits for reads", "read": "reads", "ahead": "reads ahead"}
    for i, (name, colour) in enumerate(_COLOURS.items()):
        picture.rect(_LEFT + i * 130, y, 11, 11, colour)
        picture.text(_LEFT + i * 130 + 16, y + 9, names.get(name, name), size=10)
