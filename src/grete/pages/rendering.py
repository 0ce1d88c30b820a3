"""Templates: everything foreign in them is escaped, and characters that do something to a screen are shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from grete.text_logs import printable, utc_text


class Renderer:
    """Renders the templates beside this file."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "number": number,
            "at": moment,
            "ago": ago,
            "code": code,
            "counted": counted,
        }

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The page."""
        return self._environment.get_template(template).render(values)


def _shown(value: Any) -> Any:
    if value is None:
        return "-"
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float | None) -> str:
    """Thousands separated, a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < abs(value) < 100 and value != int(value) else f"{value:,.0f}"


def code(text: str) -> Markup:
    """What stands between backticks, as code."""
    parts = [escape(printable(part)) for part in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(one) if n % 2 else one for n, one in enumerate(parts)
    )


def counted(count: int, one: str) -> str:
    """A number of things, as `1 job` or `2 jobs`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def moment(at_ms: int | None) -> str:
    """A time in UTC, to the second; a dash for none."""
    return "-" if at_ms is None else utc_text(at_ms)


def ago(at_ms: int | None) -> str:
    """How long ago that is, to the unit that matters."""
    if at_ms is None:
        return "-"
    seconds = max(0, int(time.time() - at_ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"
