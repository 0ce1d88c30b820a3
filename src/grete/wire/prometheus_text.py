"""Metrics as Prometheus reads them: the text exposition format, version 0.0.4. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KINDS = ("counter", "gauge")


@dataclass(slots=True)
class Family:
    """A metric with its samples. A family without samples is written too, so that a reader knows it exists."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], int | float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), f"{self.name!r} is no name of a metric"
        assert self.kind in _KINDS, self.kind

    def add(self, value: int | float, /, **labels: str) -> None:
        """Add a sample. Label values may be any text."""
        assert all(_LABEL.fullmatch(name) for name in labels), labels
        self.samples.append((labels, value))


def encode(families: Iterable[Family]) -> str:
    """All families, each with HELP and TYPE; the text ends with a line feed."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escape(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "".join(line + "\n" for line in lines)


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
