"""Metrics as Prometheus reads them: its text format, version 0.0.4, or OpenMetrics 1.0.0. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TOTAL = "_total"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KINDS = ("counter", "gauge")


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A number with its labels. An `exemplar` is the trace of one of those that are counted, and its part of it."""

    labels: Mapping[str, str]
    value: int | float
    exemplar: tuple[str, float] | None = None


@dataclass(slots=True)
class Family:
    """A metric with its samples. A family without samples is written too, so that a reader knows it exists."""

    name: str
    kind: str
    help: str
    samples: list[MetricSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), f"{self.name!r} is no name of a metric"
        assert self.kind in _KINDS, self.kind

    def add(self, value: int | float, /, **labels: str) -> None:
        """Add a sample. Label values may be any text."""
        assert all(_LABEL.fullmatch(name) for name in labels), labels
        self.samples.append(MetricSample(labels, value))

    def exemplify(self, trace: str, part: float) -> None:
        """Name a trace that the last sample counts, and its part of it."""
        self.samples[-1] = replace(self.samples[-1], exemplar=(trace, part))


def content_type(accept: str) -> str:
    """The form that a reader wants most by its `Accept`: OpenMetrics where it is named, else Prometheus' own."""
    wanted = {TEXT: 0.0, OPEN_METRICS: 0.0}
    for one in accept.split(","):
        kind, *more = [part.strip() for part in one.lower().split(";")]
        said = dict(part.partition("=")[::2] for part in more)
        if kind == "application/openmetrics-text" and said.get("version", "1.0.0") == "1.0.0":
            wanted[OPEN_METRICS] = max(wanted[OPEN_METRICS], _weight(said.get("q", "1")))
        elif kind in ("text/plain", "text/*"):
            wanted[TEXT] = max(wanted[TEXT], _weight(said.get("q", "1")))
    return OPEN_METRICS if wanted[OPEN_METRICS] > wanted[TEXT] else TEXT


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def encode(families: Iterable[Family], form: str = TEXT) -> str:
    """All families, each with HELP and TYPE; the text ends with a line feed.

    The names are the same in both forms. OpenMetrics lets a counter's samples end in `_total` alone, so those with
    another name, which is Samza's, are of an unknown kind there.
    """
    lines = []
    is_open = form == OPEN_METRICS
    for family in families:
        name, kind = family.name, family.kind
        if is_open and kind == "counter":
            name, kind = (name[: -len(_TOTAL)], kind) if name.endswith(_TOTAL) else (name, "unknown")
        lines.append(f"# HELP {name} {_escape(family.help, quotes=is_open)}")
        lines.append(f"# TYPE {name} {kind}")
        has_exemplars = is_open and kind == "counter"
        for one in family.samples:
            exemplar = _exemplar(one.exemplar) if has_exemplars and one.exemplar else ""
            lines.append(f"{family.name}{_labels(one.labels)} {_number(one.value)}{exemplar}")
    return "".join(line + "\n" for line in [*lines, *(["# EOF"] if is_open else [])])


def _exemplar(of: tuple[str, float]) -> str:
    trace, value = of
    return f" # {_labels({'trace_id': trace})} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escape(value, quotes=True)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is no text
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: int | float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if isinstance(value, int) else repr(value)
