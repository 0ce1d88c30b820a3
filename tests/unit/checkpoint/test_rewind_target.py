from __future__ import annotations

import pytest

from grete.checkpoint.rewind_target import BatchTarget, parse_target, startpoint_target
from grete.errors import ConfigError
from grete.model.startpoint import Startpoint, StartpointKind


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("oldest", Startpoint(StartpointKind.OLDEST, 0)),
        ("upcoming", Startpoint(StartpointKind.UPCOMING, 0)),
        ("offset:0042", Startpoint(StartpointKind.SPECIFIC, 0, offset="42")),
        ("timestamp:1700000000123", Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=1700000000123)),
        (
            "timestamp:2026-03-01T02:30:00Z",
            Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=1772332200000),
        ),
        ("timestamp:2026-03-01T02:30", Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=1772332200000)),
        (
            "timestamp:2026-03-01T03:30:00.5+01:00",
            Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=1772332200500),
        ),
        ("batch:7", BatchTarget(7)),
        ("batch:3f2a/7", BatchTarget(7, "3f2a")),
    ],
)
def test_every_form_is_read_and_a_time_without_zone_is_utc(text: str, target: object) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "newest",
        "oldest:",
        "offset:",
        "offset:-1",
        "offset:1x",
        "timestamp:yesterday",
        "batch:",
        "batch:-1",
        "7",
    ],
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ISO 8601|oldest, upcoming, offset:N"):
        parse_target(text)


def test_a_startpoint_knows_no_batches() -> None:
    assert startpoint_target("upcoming").kind is StartpointKind.UPCOMING
    with pytest.raises(ConfigError, match="grete checkpoint rewind"):
        startpoint_target("batch:7")
