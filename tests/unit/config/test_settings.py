"""A configuration as values: typed, read when they are first needed, and not changed afterwards."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from grete.config.choices import LostOffsets, OffsetDefault
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream

IN = SystemStream("kafka", "in")


def test_a_setting_has_the_type_and_the_default_of_its_key() -> None:
    assert Settings.of({}).task.window_ms == -1
    assert Settings.of({"task.window.ms": "250"}).task.window_ms == 250
    assert Settings.of({}).task.lost_offsets is LostOffsets.STOP
    assert Settings.of({"task.lost-offsets.policy": "SKIP"}).task.lost_offsets is LostOffsets.SKIP
    assert Settings.of({}).task.checkpoint_path is None


def test_a_wrong_value_is_an_error_only_where_it_is_needed() -> None:
    settings = Settings.of(
        {
            "task.window.ms": "soon",
            "streams.in.samza.partitions": "many",
            "streams.in.samza.offset.default": "oldest",
        }
    )
    assert settings.task.max_records_per_batch == 200_000
    assert settings.stream(IN).offset_default is OffsetDefault.OLDEST
    with pytest.raises(ConfigError, match=r"task\.window\.ms='soon': it is not a number of milliseconds"):
        _ = settings.task.window_ms
    with pytest.raises(ConfigError, match=r"streams\.in\.samza\.partitions='many' of kafka\.in"):
        _ = settings.stream(IN).partitions


def test_a_setting_that_has_to_be_set_says_how() -> None:
    with pytest.raises(ConfigError, match=r"Missing required config: job\.name\. Set it"):
        _ = Settings.of({}).job.name


def test_settings_stay_as_they_were_read() -> None:
    raw = {"task.inputs": "kafka.in"}
    settings = Settings.of(raw)
    raw["task.inputs"] = "kafka.other"
    assert settings.task.inputs == (IN,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.raw = {}  # type: ignore[misc]


def test_settings_travel_to_other_processes_and_never_show_a_value() -> None:
    settings = Settings.of({"task.inputs": "kafka.in", "systems.kafka.producer.sasl.password": "hunter2"})
    assert settings.task.inputs == (IN,)
    assert pickle.loads(pickle.dumps(settings)).task.inputs == (IN,)  # noqa: S301 - our own bytes
    assert "hunter2" not in repr(settings) + repr(settings.task) + repr(settings.system("kafka"))
