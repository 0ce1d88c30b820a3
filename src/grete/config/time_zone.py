"""The time zone of a pipeline's session (`spark.sql.session.timeZone`), chosen once for the life of a job.

Spark takes the zone of the driver's machine where nothing is configured. A job outlives its machine: texts and dates
would mean other instants on the next one. So the first submit writes down the zone that Spark would take where it is
made, and later ones keep it. A pipeline whose stream has no zone was begun by a version that had `BEFORE`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from grete.config.key_tables.streams import SPARK_TIME_ZONE
from grete.config.settings import Settings

TIME_ZONE = SPARK_TIME_ZONE.name
BEFORE = "UTC"
_OPTION = re.compile(r"-Duser\.timezone=(\S+)")
_AREA_AND_CITY = re.compile(r"[A-Za-z_]+(/[A-Za-z_+-]+)+")
_LOCALTIME = Path("/etc/localtime")
_ZONES = "zoneinfo"
_SAME_ZONES = ("posix", "right")
_NO_NAMES = ("posixrules", "localtime", "Factory")
"""Below the folder of zones, and no names of them."""


def with_time_zone(submitted: Settings, in_force: Settings | None, here: str | None = None) -> Settings:
    """The submitted settings, of a pipeline with its time zone: the submitted one, else that in force, else `here`.

    `here` is by default `local_time_zone`. StreamTasks have no session.
    """
    if submitted.spark.time_zone is not None or not submitted.job.is_pipeline:
        return submitted
    if in_force is not None and in_force.job.is_pipeline:
        zone = in_force.spark.time_zone or BEFORE
    else:
        zone = here or local_time_zone(submitted)
    return Settings.of({**submitted.raw, TIME_ZONE: zone})


def local_time_zone(
    settings: Settings, environment: Mapping[str, str] = os.environ, localtime: Path = _LOCALTIME
) -> str:
    """The zone that a JVM of this machine has, as Java finds it: its option, `TZ`, then the machine's own."""
    options = " ".join((environment.get("JAVA_TOOL_OPTIONS", ""), settings.spark.driver_java_options))
    if named := _OPTION.findall(options):
        return str(named[-1]).strip("'\"")
    variable = environment.get("TZ", "").removeprefix(":")
    if not variable:
        return _of_the_machine(localtime)
    name = _named(variable.split("/"))
    return name if name is not None and _is_name(name) else _offset()


def _named(parts: Sequence[str]) -> str | None:
    """The name of the zone at a place below the folder of zones: the same zones are there in two more folders."""
    while parts and parts[0] in _SAME_ZONES:
        parts = parts[1:]
    return "/".join(parts) if parts and parts[0] not in _NO_NAMES else None


def _of_the_machine(localtime: Path) -> str:
    """The name behind the link, else that of the file with the same content; Java has no other way either."""
    link = (
        localtime.readlink().parts if localtime.is_symlink() else ()
    )  # also one to a zone that is not installed
    named = _named(link[link.index(_ZONES) + 1 :]) if _ZONES in link else None
    if named is not None:
        return named
    if not localtime.exists():
        return BEFORE
    content = localtime.read_bytes()
    return next((name for name in _known() if _content(name) == content), None) or _offset()


def _known() -> Iterable[str]:
    folder = Path("/usr/share", _ZONES)
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return ("/".join(name.parts) for name in found if name.parts[0] not in (*_SAME_ZONES, *_NO_NAMES))


def _content(name: str) -> bytes:
    return Path("/usr/share", _ZONES, name).read_bytes()


def _is_name(text: str) -> bool:
    """Whether it names a zone, and is no rule such as `CET-1CEST`, of which Java takes the offset alone."""
    with suppress(ValueError, KeyError, OSError):
        ZoneInfo(text)
        return True
    return not available_timezones() and _AREA_AND_CITY.fullmatch(text) is not None


def _offset() -> str:
    """The offset of now, in Java's words."""
    minutes = time.localtime().tm_gmtoff // 60
    sign = "-" if minutes < 0 else "+"
    return f"GMT{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
