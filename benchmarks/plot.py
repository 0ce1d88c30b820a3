"""Curves as SVG: one axis from left to right, a line for each series, points that were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 40, 50
_INK = "#222222"
_MARKS, _FEW = 8, 30
_NAME_HEIGHT = 14
_COLOURS = ("#1b6ca8", "#c1532c", "#3a7d44", "#7a4b94")


@dataclass(frozen=True, slots=True)
class Plot:
    """`series` by name: (x, y). Both axes are logarithmic, since what is measured spans powers of ten, or begin at 0.

    Points are marked where they are few.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    begins_at_0: bool = False

    def svg(self) -> str:
        """The picture."""
        xs = [x for points in self.series.values() for x, _ in points]
        ys = [y for points in self.series.values() for _, y in points]
        axis = _AxisFrom0 if self.begins_at_0 else _Axis
        across = axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
        up = axis(min(ys), max(ys), _HEIGHT - _BOTTOM, _TOP)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'font-size="12" role="img" aria-label="{escape(self.title)}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            _text(_LEFT, 20, self.title, weight="bold"),
            _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, self.x, anchor="middle"),
            _text(8, _TOP - 8, self.y),
        ]
        for value in across.marks():
            at = across.at(value)
            parts.append(_line(at, _TOP, at, _HEIGHT - _BOTTOM))
            parts.append(_text(at, _HEIGHT - _BOTTOM + 16, _short(value), anchor="middle"))
        for value in up.marks():
            at = up.at(value)
            parts.append(_line(_LEFT, at, _WIDTH - _RIGHT, at))
            parts.append(_text(_LEFT - 6, at + 4, _short(value), anchor="end"))
        drawn = {name: [(across.at(x), up.at(y)) for x, y in points] for name, points in self.series.items()}
        places = _apart({name: points[-1][1] for name, points in drawn.items()})
        for number, (name, points) in enumerate(drawn.items()):
            parts += _series(name, points, _COLOURS[number], places[name])
        return "\n".join([*parts, "</svg>", ""])


class _Axis:
    def __init__(self, least: float, most: float, begin: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        self._high = max(self._high, self._low + 1)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._begin + share * (self._end - self._begin), 1)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


class _AxisFrom0(_Axis):
    def __init__(self, least: float, most: float, begin: float, end: float) -> None:
        power = 10.0 ** math.floor(math.log10(most))
        self._step = next(
            step * power for step in (0.1, 0.2, 0.5, 1, 2, 5) if most / (step * power) <= _MARKS
        )
        self._steps = math.ceil(most / self._step)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = value / (self._steps * self._step)
        return round(self._begin + share * (self._end - self._begin), 1)

    def marks(self) -> list[float]:
        return [round(number * self._step, 9) for number in range(self._steps + 1)]


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """Where the names of lines stand that end there, none upon another."""
    found: dict[str, float] = {}
    lowest = math.inf
    for name, y in sorted(ends.items(), key=lambda one: -one[1]):
        lowest = found[name] = round(min(y, lowest - _NAME_HEIGHT), 1)
    return found


def _series(name: str, points: Sequence[tuple[float, float]], colour: str, name_at: float) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in points)
    x = points[-1][0]
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points if len(points) <= _FEW),
        _text(x + 8, name_at + 4, name, fill=colour),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", fill: str = "#222222"
) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}">{escape(text)}</text>'


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
