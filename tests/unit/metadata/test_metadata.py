"""JobCoordinatorMetadata (SAMZA-2609) and the coordinator stream."""

from __future__ import annotations

import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.clock import SystemClock
from grete.coordinator.metadata_manager import (
    STARTS,
    JobCoordinatorMetadataManager,
    MetadataMetrics,
    MetadataStoreError,
)
from grete.errors import Fenced, GreteError, IllegalStateError, StorageFull
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.memory import MemoryKeyedLog
from grete.launch.processes import ProcessName, parse_name
from grete.metadata.config_history import config_generations
from grete.metadata.coordinator_stream import CoordinatorStream, host_address
from grete.metadata.history import HISTORY, History
from grete.metadata.launches import LAUNCH, read_launches
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, JobModel, TaskModel
from grete.model.messages import CoordinatorMessage
from grete.model.metadata import JobCoordinatorMetadata
from grete.wire.job_coordinator_metadata import config_id, epoch_id

ENVIRONMENT = {"CONTAINER_ID": "container_1606797336059_0010_01_000001"}


def stream(log: MemoryKeyedLog | None = None, fence: Fence | None = None) -> CoordinatorStream:
    return CoordinatorStream(log or MemoryKeyedLog(SystemClock()), SystemClock(), source="test", fence=fence)


def model(*layout: int) -> JobModel:
    """Containers with so many tasks each; S0-40's fixture is model(2, 3)."""
    containers, number = {}, 0
    for index, count in enumerate(layout):
        tasks = {}
        for _ in range(count):
            name = TaskName(f"t{number + 1}")
            tasks[name] = TaskModel(name, (SystemStreamPartition("s", "in", number),), number)
            number += 1
        containers[ContainerId(str(index))] = ContainerModel(ContainerId(str(index)), tasks)
    return JobModel({}, containers)


def metadata(epoch: str = "e", config: str = "c", job_model: str = "m") -> JobCoordinatorMetadata:
    return JobCoordinatorMetadata(epoch, config, job_model)


@pytest.mark.parametrize("blank", [None, "", " \t"])
@pytest.mark.parametrize(("position", "name"), [(0, "Epoch ID"), (1, "Config ID"), (2, "Job Model ID")])
def test_no_id_may_be_blank_and_the_epoch_is_looked_at_first(blank: str, position: int, name: str) -> None:
    ids = ["x", "x", "x"]
    ids[position] = blank
    with pytest.raises(IllegalStateError, match=f"{name} cannot be empty"):
        JobCoordinatorMetadata(*ids)
    with pytest.raises(IllegalStateError, match="Epoch"):
        JobCoordinatorMetadata(blank, blank, blank)


def test_metadata_is_a_value() -> None:
    assert {metadata(), metadata()} == {metadata()}
    assert metadata() != metadata(epoch="f")
    assert metadata() != "metadata"
    assert repr(metadata()) == "JobCoordinatorMetadata{configId='c', epochId='e', jobModelId='m'}"
    with pytest.raises(AttributeError):
        metadata().epoch_id = "other"  # type: ignore[misc]


def test_metrics_are_there_before_any_check() -> None:
    assert JobCoordinatorMetadataManager(stream(), "YARN").metrics == MetadataMetrics(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("new", "previous", "counted"),
    [
        (metadata(), None, {"newDeployment": 1}),
        (metadata("e2", "c2", "m2"), metadata(), {"newDeployment": 1}),
        (metadata("e", "c2", "m2"), metadata(), {"jobModelChanged": 1}),
        (metadata("e", "c2", "m"), metadata(), {"configChanged": 1}),
        (metadata(), metadata(), {"applicationAttemptCount": 1}),
    ],
)
def test_only_the_first_difference_counts(
    new: JobCoordinatorMetadata, previous: JobCoordinatorMetadata | None, counted: dict[str, int]
) -> None:
    manager = JobCoordinatorMetadataManager(stream(), "YARN")
    assert manager.check_for_changes(new, previous) == ("applicationAttemptCount" not in counted)
    found = {name: getattr(manager.metrics, name) for name in MetadataMetrics.__slots__}
    assert {name: value for name, value in found.items() if value} == counted


def test_a_start_says_in_one_line_what_was_compared(caplog: pytest.LogCaptureFixture) -> None:
    manager = JobCoordinatorMetadataManager(stream(), "YARN")
    with caplog.at_level(logging.INFO, STARTS):
        manager.check_for_changes(metadata(), None)
        manager.check_for_changes(metadata("e2"), metadata())
        manager.check_for_changes(metadata("e2"), metadata("e2"))
    before, after = metadata(), metadata("e2")
    assert caplog.messages == [
        f"Job coordinator metadata changed from: None to: {before}",
        f"Job coordinator metadata changed from: {before} to: {after}",
        f"Job coordinator metadata is unchanged: {after}",
    ]


def test_ids_are_repeatable_and_know_what_counts() -> None:
    manager = JobCoordinatorMetadataManager(stream(), "YARN")
    first = manager.generate(model(2, 3), {"job.autosizing.cpu.core": "16"}, ENVIRONMENT)
    assert first == manager.generate(model(2, 3), {"job.autosizing.cpu.core": "16", "x": "y"}, ENVIRONMENT)
    changed = manager.generate(model(2, 3), {"job.autosizing.cpu.core": "24"}, ENVIRONMENT)
    assert (changed.config_id != first.config_id, changed.job_model_id) == (True, first.job_model_id)
    assert manager.generate(model(3, 2), {}, ENVIRONMENT).job_model_id != first.job_model_id


def test_a_yarn_id_with_an_epoch_part_still_names_the_application() -> None:
    assert (
        epoch_id("YARN", {"CONTAINER_ID": "container_e66_1569376389369_0221_01_000049"})
        == "1569376389369_0221"
    )
    with pytest.raises(GreteError, match="Failed to generate the metadata for the current attempt due to"):
        JobCoordinatorMetadataManager(stream(), "YARN").generate(model(1), {}, {})


def test_metadata_is_kept_by_cluster_type_and_garbage_counts_as_none() -> None:
    log = MemoryKeyedLog(SystemClock())
    yarn = JobCoordinatorMetadataManager(stream(log), "YARN")
    other = JobCoordinatorMetadataManager(stream(log), "NON_YARN")
    assert yarn.read() is None
    other.write(metadata("other"))
    yarn.write(metadata())
    assert (yarn.read(), other.read()) == (metadata(), metadata("other"))
    log.append([Entry(b'[1,"set-job-coordinator-metadata","YARN"]', b'{"values":{"meta-key":"garbage"}}')])
    assert yarn.read() is None
    with pytest.raises(IllegalStateError, match="cannot be null"):
        yarn.write(None)  # type: ignore[arg-type]


class FullLog(MemoryKeyedLog):
    def append(self, *_: object, **__: object) -> int:
        raise StorageFull("no space left")


def test_a_write_that_fails_keeps_its_cause() -> None:
    manager = JobCoordinatorMetadataManager(stream(FullLog(SystemClock())), "YARN")
    with pytest.raises(MetadataStoreError, match="Failed to write the job coordinator metadata") as failure:
        manager.write(metadata())
    assert isinstance(failure.value.__cause__, StorageFull)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=6), st.randoms())
def test_the_config_id_does_not_depend_on_order(extra: dict[str, str], shuffle: object) -> None:
    config = {f"job.autosizing.{key}": value for key, value in extra.items()}
    items = list(config.items())
    shuffle.shuffle(items)  # type: ignore[attr-defined]
    assert config_id(dict(items)) == config_id(config)


def test_a_generation_is_one_append_and_vanished_keys_are_tombstoned() -> None:
    log = MemoryKeyedLog(SystemClock())
    stream(log).write_config({"a": "1", "b": ""}, run_id="r1", reason="first")
    before = log.end()
    changes = stream(log).write_config({"b": "", "c": "3"}, run_id="r2")
    assert [(c.key, c.old, c.new) for c in changes] == [("c", None, "3"), ("a", "1", None)]
    assert stream(log).config() == {"b": "", "c": "3"}
    assert stream(log).run_id() == "r2"
    assert log.end() - before == 3
    reasons = [(one.message.values or {}).get("reason") for one in config_generations(log)]
    assert reasons == ["first", ""]


def test_what_a_foreign_writer_leaves_is_kept_aside_with_its_offset() -> None:
    log = MemoryKeyedLog(SystemClock())
    log.append(
        [Entry(b"garbage", b"x"), Entry(b'[2,"set-config","a"]', b"{}"), Entry(b'[1,"other","k"]', b"{}")]
    )
    stream(log).write_config({"a": "1"}, run_id="r")
    reader = stream(log)
    assert reader.config() == {"a": "1"}
    assert [quarantined.offset for quarantined in reader.quarantined] == [0, 1]


@pytest.mark.parametrize(
    "value",
    [
        b'{"host":"h","source":"s","values":{"value":"plain"},"username":"u","timestamp":1}',
        b'{"values":{"value":"without origin"}}',
        b'{"values":{"value":7}}',
        b'{"values":{"value":null}}',
        b'{"values":{"value":""}} and text behind it',
        b'{"values":{"other":"x"}}',
        b'{"values":["value"]}',
        b'{"values":{"value":"\\ud800"}}',
        b'["values"]',
        b"garbage",
        b'{"values":{"value":"' + b"x" * (1 << 20) + b'"}}',
    ],
)
def test_the_quick_way_to_a_value_says_what_the_whole_message_says(value: bytes) -> None:
    log = MemoryKeyedLog(SystemClock())
    log.append([Entry(b'[1,"set-config","key"]', value)])
    message = stream(log).messages("set-config").get("key")
    whole = None if message is None or message.values is None else message.values.get("value")
    assert stream(log).values("Set-Config") == ({} if whole is None else {"key": whole})


def test_messages_are_immutable_and_equal_by_what_they_say() -> None:
    values = {"value": "1"}
    message = CoordinatorMessage("set-config", "k", values)
    values["value"] = "2"
    assert message.values == {"value": "1"}
    with pytest.raises(TypeError):
        message.values["value"] = "3"  # type: ignore[index]
    assert message == CoordinatorMessage("set-config", "k", {"value": "1"})
    assert CoordinatorMessage("set-config", "k", None).is_delete


def test_history_keeps_the_newest_rows() -> None:
    log = MemoryKeyedLog(SystemClock())
    history = History(stream(log))
    for number in range(505):
        history.append("event", number=str(number))
    rows = history.rows()
    assert (len(rows), rows[-1].details["number"]) == (500, "504")


def test_rows_that_two_processes_write_at_the_same_time_are_both_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MemoryKeyedLog(SystemClock())
    one, other = History(stream(log)), History(stream(log))
    monkeypatch.setattr(other, "_keys", list)  # it has read before the first wrote
    one.append("offsets-skipped", container="0")
    other.append("offsets-skipped", container="1")
    History(stream(log)).append("stopped")
    rows = History(stream(log)).rows()
    assert sorted(row.details.get("container", "") for row in rows) == ["", "0", "1"]
    assert (rows[-1].event, rows[-1].number) == ("stopped", 1)


@pytest.mark.parametrize("key", ["", "-", "x", "-1", "²", "9" * 5000, "x-1"])
def test_a_key_of_history_that_is_none_of_ours_is_passed_over(key: str) -> None:
    written = stream(MemoryKeyedLog(SystemClock()))
    written.append(
        [written.entry(HISTORY, key, {"event": "foreign"}), written.entry(HISTORY, "6", {"event": "old"})]
    )
    History(written).append("new")
    assert [(row.number, row.event) for row in History(written).rows()] == [(6, "old"), (7, "new")]


ENTRIES = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.text(max_size=3)), max_size=30)


@given(ENTRIES)
def test_compaction_never_changes_what_a_reader_sees(writes: list[tuple[str, str | None]]) -> None:
    logs = [MemoryKeyedLog(SystemClock()) for _ in range(2)]
    for log in logs:
        for key, value in writes:
            stream(log).append(
                [stream(log).entry("set-config", key, None if value is None else {"value": value})]
            )
    logs[1].compact()
    assert stream(logs[0]).config() == stream(logs[1]).config()


@pytest.mark.parametrize("number", ["", "x", "-1", "9" * 30, "9" * 5000])
def test_a_launch_record_with_an_impossible_number_is_ignored(number: str) -> None:
    stream = CoordinatorStream(MemoryKeyedLog(SystemClock()), SystemClock(), source="test")
    good = {"epoch": "7", "serial": "3", "handle": "", "tasks": "t", "query": "q", "process": "p"}
    stream.append([stream.entry(LAUNCH, "0", good), stream.entry(LAUNCH, "1", {**good, "serial": number})])
    stream.append([stream.entry(LAUNCH, "2", {**good, "epoch": number})])
    assert list(read_launches(stream)) == [ContainerId("0")]


@pytest.mark.parametrize("pid", ["", "-1", "²", "9" * 25, "9" * 5000])
def test_a_handle_without_a_process_id_names_no_process(pid: str) -> None:
    assert parse_name(f"boot/{pid}/1") is None
    assert parse_name(f"boot/1/{pid}") is None
    assert parse_name("boot/12/345") == ProcessName("boot", 12, 345)


def test_a_coordinator_that_was_succeeded_hears_that_and_not_that_the_store_is_broken() -> None:
    log = MemoryKeyedLog(SystemClock())
    log.raise_fence(Fence("job/j", 2))
    manager = JobCoordinatorMetadataManager(stream(log, Fence("job/j", 1)), "NON_YARN")
    with pytest.raises(Fenced, match="epoch 2 has taken over"):
        manager.write(JobCoordinatorMetadata("e", "c", "m"))


def test_records_say_the_address_of_the_machine_and_not_the_loopbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda name: "192.0.2.17")
    assert host_address.__wrapped__() == "192.0.2.17"
    monkeypatch.setattr("socket.gethostbyname", lambda name: "127.0.1.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            expected = probe.getsockname()[0]
        except OSError:
            expected = "127.0.1.1"  # a machine without a network
    assert host_address.__wrapped__() == expected


def test_a_host_without_an_address_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(name: str) -> str:
        raise socket.gaierror("no such host")

    monkeypatch.setattr("socket.gethostbyname", fails)
    assert host_address.__wrapped__() == ""
    assert "the address of this host cannot be looked up" in caplog.text
