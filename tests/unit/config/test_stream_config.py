"""Settings of a stream: each place in every combination, for each reader. The vectors have Samza's answers."""

from __future__ import annotations

from itertools import product

import pytest

from grete import StreamTask
from grete.checkpoint.lag import measure_lag
from grete.checkpoint.offset_manager import starting_offsets
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.systems.admin import OffsetAdmin, PartitionOffsets
from grete.testing.job import JobUnderTest

STREAM = SystemStream("local", "id-in")
SSP = SystemStreamPartition("local", "id-in", 0)
TASK = TaskName("Partition 0")
HELD = PartitionOffsets("0", "9", "10")
BY_ID = {"streams.orders.samza.system": "local", "streams.orders.samza.physical.name": "id-in"}
BY_NAME: dict[str, str] = {}
OWN = {"id": "streams.orders.", "name": "streams.id-in.", "system": "systems.local.streams.id-in."}
DEFAULTS = {"streams": "systems.local.default.stream.", "system": "systems.local."}


class Admin(OffsetAdmin):
    """A system whose stream holds ten records."""

    def offsets(self, stream: str) -> dict[int, PartitionOffsets]:
        return {0: HELD}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_where_a_task_starts_is_what_its_lag_is_counted_from_in_every_combination(
    own: str, with_checkpoint: bool
) -> None:
    offsets = (None, "oldest", "upcoming")
    for of_stream, of_streams, of_system, reset, reset_all in product(
        offsets, offsets, offsets, (None, "true", "false"), (None, "true")
    ):
        said = {
            OWN[own] + "samza.offset.default": of_stream,
            OWN[own] + "samza.reset.offset": reset,
            DEFAULTS["streams"] + "samza.offset.default": of_streams,
            DEFAULTS["streams"] + "samza.reset.offset": reset_all,
            DEFAULTS["system"] + "samza.offset.default": of_system,
        }
        config = {key: value for key, value in said.items() if value is not None} | {
            "task.inputs": "local.id-in"
        }
        config |= BY_ID if own == "id" else BY_NAME
        default = of_stream or of_streams or of_system or "upcoming"
        is_reset = (reset or reset_all) == "true"
        checkpoint = {TASK: {SSP: "3"}} if with_checkpoint else {}
        expected = "4" if with_checkpoint and not is_reset else {"oldest": "0", "upcoming": "10"}[default]

        found = starting_offsets({TASK: [SSP]}, checkpoint, Settings.of(config), {"local": Admin()})
        lag = measure_lag(Settings.of(config), {TASK: [SSP]}, {}, {STREAM: {0: HELD}})

        assert found.by_ssp[SSP] == expected, config
        assert lag.total == (10 if default == "oldest" else 0), config


def test_bootstrap_and_partitions_are_found_by_id_by_name_and_as_the_systems_default() -> None:
    for place in (*OWN.values(), DEFAULTS["streams"]):
        config = {**BY_ID} if "orders" in place else {}
        config |= {
            place + "samza.bootstrap": "True",
            place + "samza.partitions": "7",
            place + "retention.ms": "5",
        }
        said = StreamSettings(config, STREAM)
        assert (said.is_bootstrap, said.partitions, said.retention_ms) == (True, 7, 5), place


def test_an_id_without_a_system_speaks_of_the_stream_that_it_is_mapped_to() -> None:
    config = {"streams.orders.samza.physical.name": "id-in", "streams.orders.samza.offset.default": "oldest"}
    assert StreamSettings(config, STREAM).offset_default == "oldest"
    assert StreamSettings(config, SystemStream("local", "orders")).offset_default == "upcoming"
    elsewhere = {**config, "job.default.system": "kafka"}
    assert StreamSettings(elsewhere, STREAM).offset_default == "upcoming"


def test_a_name_with_dots_is_its_own_id() -> None:
    dotted = SystemStream("local", "orders.eu")
    assert StreamSettings({"streams.orders.eu.samza.bootstrap": "true"}, dotted).is_bootstrap
    assert StreamSettings({"systems.local.streams.orders.eu.samza.bootstrap": "true"}, dotted).is_bootstrap


def test_the_key_that_a_message_names_is_one_that_counts() -> None:
    taken = {"streams.id-in.samza.physical.name": "other"}
    for config in ({}, BY_ID, taken, {"job.default.system": "kafka"}):
        key = StreamSettings(config, STREAM).key("samza.reset.offset")
        assert StreamSettings({**config, key: "true"}, STREAM).is_reset, key
    assert StreamSettings(BY_ID, STREAM).key("samza.bootstrap") == "streams.orders.samza.bootstrap"


def test_a_wrong_value_is_reported_with_its_key() -> None:
    key = "systems.local.default.stream.samza.offset.default"
    with pytest.raises(ConfigError, match=rf"{key}='first' of local\.id-in: it is none of oldest"):
        _ = StreamSettings({key: "first"}, STREAM).offset_default


def test_wrong_values_under_a_systems_defaults_and_two_ids_of_one_stream_are_problems() -> None:
    config = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.id-in", **BY_ID}
    for name in ("offset.default", "reset.offset", "bootstrap", "partitions", "partitioner"):
        key = f"systems.local.default.stream.samza.{name}"
        assert [error for error in check({**config, key: "perhaps"}).errors if key in error], key
    twice = {**config, "streams.too.samza.system": "local", "streams.too.samza.physical.name": "id-in"}
    assert check(twice).errors == ("streams orders, too are all mapped to local.id-in; keep one of them",)


class Copy(StreamTask):
    """Sends everything on."""

    def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        collector.send("local.out", envelope.message)


def job(**more: str) -> JobUnderTest:
    config = {
        **BY_ID,
        "task.inputs": "local.id-in,local.rules",
        "task.outputs": "local.out",
        "systems.local.samza.offset.default": "upcoming",
        "streams.orders.samza.offset.default": "oldest",
        "streams.orders.samza.msg.serde": "json",
        "streams.laws.samza.system": "local",
        "streams.laws.samza.physical.name": "rules",
        "streams.laws.samza.offset.default": "oldest",
        "streams.laws.samza.bootstrap": "true",
        "streams.laws.samza.msg.serde": "json",
        "streams.sent.samza.system": "local",
        "streams.sent.samza.physical.name": "out",
        "streams.sent.samza.partitions": "3",
        "streams.sent.samza.msg.serde": "json",
        **more,
    }
    return JobUnderTest(Copy, config)


def test_a_job_whose_streams_have_ids_reads_what_was_there_before_it_and_bootstraps() -> None:
    with job() as running:
        for number in range(5):
            running.send("local.id-in", number)
        running.send("local.rules", "rule")
        running.restart()
        running.run_batch()
        assert [one.message for one in running.outputs("local.out")] == ["rule"]
        running.run()
        assert sorted(map(str, (one.message for one in running.outputs("local.out")))) == [*"01234", "rule"]


def test_a_stream_that_is_reset_by_its_id_is_read_again() -> None:
    with job(**{"streams.orders.samza.reset.offset": "true"}) as running:
        running.send("local.id-in", "one")
        running.restart()
        running.run()
        running.restart()
        running.run()
        assert [one.message for one in running.outputs("local.out")] == ["one", "one"]
