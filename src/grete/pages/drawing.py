"""Pictures of a job as SVG, drawn by the server: no script of the page has to run for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from grete.text_logs import utc_text

_WIDTH, _MARGIN = 960, 12


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: `kind` decides its colour and its lane."""

    at_ms: int
    kind: str
    text: str


_LANES = {"start": 0, "change": 1, "failure": 2, "end": 0, "other": 3}
_LANE_NAMES = ("starts and ends", "changes", "failures", "other")
_LANE_HEIGHT = 26


def life_line(moments: Sequence[Moment], from_ms: int, to_ms: int) -> Markup:
    """What happened between two moments, in four lanes; each mark says what it is when it is pointed at."""
    height = len(_LANE_NAMES) * _LANE_HEIGHT + 22
    span_ms = max(1, to_ms - from_ms)
    parts = [_open(height, f"{len(moments)} events from {utc_text(from_ms)} to {utc_text(to_ms)}", "life")]
    for lane, name in enumerate(_LANE_NAMES):
        y = lane * _LANE_HEIGHT + 16
        parts.append(f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="lane" x="{_MARGIN}" y="{y - 5}">{name}</text>')
    for one in moments:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (one.at_ms - from_ms) / span_ms
        y = _LANES[one.kind] * _LANE_HEIGHT + 16
        said = escape(f"{utc_text(one.at_ms)}  {one.text}")
        parts.append(f'<circle class="{one.kind}" cx="{x:.1f}" cy="{y}" r="5"><title>{said}</title></circle>')
    base = height - 4
    parts.append(f'<text class="lane" x="{_MARGIN}" y="{base}">{utc_text(from_ms)}</text>')
    parts.append(
        f'<text class="lane" x="{_WIDTH - _MARGIN}" y="{base}" text-anchor="end">{utc_text(to_ms)}</text></svg>'
    )
    return Markup("".join(parts))  # noqa: S704 - what is foreign in it is escaped above


def line_chart(
    points: Sequence[tuple[float, float]], what: str, *, width: int = 460, height: int = 90
) -> Markup:
    """Values over time, oldest first; empty with fewer than two points."""
    if len(points) < 2:
        return Markup("")
    first_s, last_s = points[0][0], points[-1][0]
    most = max(value for _, value in points)
    span_s = max(1e-9, last_s - first_s)
    path = " ".join(
        f"{(at_s - first_s) / span_s * (width - 4) + 2:.1f},{height - 3 - value / (most or 1.0) * (height - 6):.1f}"
        for at_s, value in points
    )
    label = escape(f"{what}: at most {most:,.0f} in the last {_span(span_s)}")
    return Markup(  # noqa: S704 - numbers alone, and a name of ours
        f'<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}"><title>{label}</title><polyline points="{path}"/></svg>'
        f'<span class="small">at most {most:,.0f} in the last {_span(span_s)}</span>'
    )


def spark_line(points: Sequence[tuple[float, float]]) -> Markup:
    """The course of a value, small enough for a cell; empty with fewer than two points."""
    if len(points) < 2:
        return Markup("")
    most = max(value for _, value in points) or 1.0
    first_s, span_s = points[0][0], max(1e-9, points[-1][0] - points[0][0])
    path = " ".join(
        f"{(at_s - first_s) / span_s * 118 + 1:.1f},{25 - value / most * 23:.1f}" for at_s, value in points
    )
    return Markup(  # noqa: S704 - numbers alone
        f'<svg class="spark" viewBox="0 0 120 26" aria-hidden="true"><polyline points="{path}"/></svg>'
    )


class Box(NamedTuple):
    """A part of a pipeline: its name, and figures of it."""

    name: str
    figures: Sequence[str] = ()


_BOX_WIDTH, _BOX_GAP, _LINE = 280, 60, 16
_LONGEST_IN_A_BOX = 32


def pipeline_graph(columns: Sequence[Sequence[Box]]) -> Markup:
    """Inputs, operators that keep state, and outputs from left to right; operators follow one another."""
    shown = [column for column in columns if column]
    heights = [sum(_box_height(box) + 12 for box in column) for column in shown]
    height, width = max(heights) + 8, len(shown) * (_BOX_WIDTH + _BOX_GAP) - _BOX_GAP + 4
    names = " to ".join(", ".join(box.name for box in column) for column in shown)
    label = escape(f"Data goes from {names}")
    parts = [
        f'<svg class="plan" viewBox="0 0 {width} {height}" role="img" aria-label="{label}"><title>{label}</title>'
    ]
    ends: list[tuple[float, float]] = []
    for number, (column, own) in enumerate(zip(shown, heights, strict=True)):
        x, y = number * (_BOX_WIDTH + _BOX_GAP) + 2.0, (height - own) / 2 + 4
        begins = []
        for box in column:
            parts.append(_box(box, x, y))
            begins.append((x, y + _box_height(box) / 2))
            y += _box_height(box) + 12
        parts += [f'<path d="M{a} {b} L{c} {d}"/>' for a, b in ends for c, d in begins]
        ends = [(left + _BOX_WIDTH, middle) for left, middle in begins]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - names are escaped


def _box_height(box: Box) -> int:
    return 14 + _LINE * (1 + len(box.figures))


def _box(box: Box, x: float, y: float) -> str:
    texts = [("name", box.name), *(("figure", one) for one in box.figures)]
    lines = "".join(
        f'<text class="{kind}" x="{x + 10}" y="{y + 18 + _LINE * number}">{_fitting(text)}</text>'
        for number, (kind, text) in enumerate(texts)
    )
    return f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_box_height(box)}" rx="5"/>{lines}'


def _fitting(text: str) -> str:
    """As much as a box is wide enough for; all of it is there when it is pointed at."""
    if len(text) <= _LONGEST_IN_A_BOX:
        return str(escape(text))
    return f"{escape(text[: _LONGEST_IN_A_BOX - 1])}…<title>{escape(text)}</title>"


def _open(height: int, label: str, kind: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>"
    )


def _span(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds >= 120 else f"{seconds:,.0f} s"
