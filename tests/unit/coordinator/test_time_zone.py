"""The time zone of a pipeline's session is chosen once, by Spark's rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.time_zone import local_time_zone, with_time_zone
from grete.coordinator.coordinator import RequestedRun
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream

ZONE = "spark.sql.session.timeZone"
PIPELINE = Settings.of({"job.name": "orders", "app.class": "jobs:It", "task.inputs": "local.in"})
TASKS = Settings.of({"job.name": "orders", "task.class": "jobs:It", "task.inputs": "local.in"})


@pytest.fixture
def stream() -> CoordinatorStream:
    return CoordinatorStream(MemoryKeyedLog(SystemClock()), SystemClock(), source="test")


def _submitted(stream: CoordinatorStream, settings: Settings) -> str | None:
    asked = RequestedRun(settings, "run", True)
    return asked.write(stream, lambda settings: None).raw.get(ZONE)


def test_a_new_pipeline_keeps_the_zone_of_its_first_submit_on_every_machine(
    stream: CoordinatorStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert _submitted(stream, PIPELINE) == "Europe/Berlin"
    monkeypatch.setenv("TZ", "America/New_York")
    assert _submitted(stream, PIPELINE) == "Europe/Berlin"
    assert _submitted(stream, Settings.of({**PIPELINE.raw, ZONE: "Asia/Tokyo"})) == "Asia/Tokyo", (
        "the job says otherwise"
    )


def test_a_pipeline_that_an_earlier_version_began_keeps_utc(
    stream: CoordinatorStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.write_config(PIPELINE.raw, run_id="before")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert _submitted(stream, PIPELINE) == "UTC"
    assert stream.config()[ZONE] == "UTC"


def test_tasks_have_no_zone_and_one_that_becomes_a_pipeline_has_that_of_here() -> None:
    assert ZONE not in with_time_zone(TASKS, None, "Europe/Berlin").raw
    assert with_time_zone(PIPELINE, TASKS, "Europe/Berlin").raw[ZONE] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("posix/Asia/Tokyo", "Asia/Tokyo"),
        ("right/Asia/Tokyo", "Asia/Tokyo"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("EST5EDT", "EST5EDT"),
        ("Etc/GMT+5", "Etc/GMT+5"),
        ("GMT0", "GMT0"),
    ],
)
def test_a_variable_names_the_zone_as_java_takes_it(variable: str, zone: str) -> None:
    assert local_time_zone(Settings(), {"TZ": variable}) == zone


def test_a_rule_is_no_name_and_gives_the_offset_of_now() -> None:
    assert local_time_zone(Settings(), {"TZ": "CET-1CEST"}).startswith("GMT")


def test_an_option_of_java_comes_before_the_variable() -> None:
    settings = Settings.of({"spark.driver.extraJavaOptions": "-Xss4m -Duser.timezone=Asia/Tokyo"})
    assert local_time_zone(settings, {"TZ": "Europe/Berlin"}) == "Asia/Tokyo"
    assert local_time_zone(Settings(), {"JAVA_TOOL_OPTIONS": "-Duser.timezone=UTC"}) == "UTC"


def test_the_machines_own_zone_is_the_one_that_its_link_names(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert local_time_zone(Settings(), {}, link) == ("Europe/Berlin" if link.exists() else "UTC")
    assert local_time_zone(Settings(), {}, tmp_path / "none") == "UTC"


def test_a_machine_that_links_to_a_zone_that_is_not_installed_has_it_all_the_same(tmp_path: Path) -> None:
    """As in an image without tzdata. Below the folder of zones the same ones are there again, and some are none."""
    link = tmp_path / "localtime"
    for target, zone in (
        ("/usr/share/zoneinfo/Nowhere/Europe/Berlin", "Nowhere/Europe/Berlin"),
        ("/usr/share/zoneinfo/posix/Europe/Berlin", "Europe/Berlin"),
    ):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert local_time_zone(Settings(), {}, link) == zone
    assert local_time_zone(Settings(), {}, tmp_path / "none") == "UTC"
