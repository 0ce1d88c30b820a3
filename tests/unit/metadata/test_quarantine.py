"""Unknown records: passed over, shown with their offset, removed by one command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import StreamError
from grete.keyed_log.base import Entry
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import ChangelogMapping
from grete.metadata.config_history import config_generations
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.input_streams import read_input_uids
from grete.model.ids import JobId, SystemStream
from grete.model.streams import MOST_PARTITIONS, StreamSpec
from grete.operations.job_handle import open_job
from grete.systems.local.system import LocalSystem

SURROGATE = b'[1,"set-config","bad\\ud800key"]'
NO_STREAM = b'[1,"grete-input-stream","nodot"]'
Output = pytest.CaptureFixture[str]


def stream(log: MemoryKeyedLog | None = None) -> CoordinatorStream:
    return CoordinatorStream(log or MemoryKeyedLog(SystemClock()), SystemClock(), source="test")


def value(text: str) -> bytes:
    return json.dumps({"values": {"value": text, "uid": text, "Partition": text}}).encode()


def test_a_key_that_is_no_text_is_set_aside_and_never_part_of_the_configuration() -> None:
    written = stream()
    written.write_config({"a": "1"}, run_id="r")
    written.log.append([Entry(SURROGATE, value("x"))])
    assert written.config() == {"a": "1"}
    assert [one.offset for one in written.quarantined] == [2]
    assert "".join(str(one) for one in written.quarantined).isprintable()
    assert [dict(generation.config) for generation in config_generations(written.log)] == [{"a": "1"}]


def test_what_is_set_aside_goes_with_its_record() -> None:
    written = stream()
    written.log.append([Entry(SURROGATE, b"x"), Entry(b'[1, "set-config","k"]', b"x"), Entry(b"junk", b"x")])
    assert written.config() == {}
    assert [one.offset for one in written.quarantined] == [0, 1, 2]
    written.log.append([Entry(b"junk", None), Entry(b'[1, "set-config","k"]', value("good"))])
    assert written.config() == {"k": "good"}
    assert [one.offset for one in written.quarantined] == [0]


def test_removing_deletes_the_bytes_as_they_were_written() -> None:
    written = stream()
    written.log.append(
        [Entry(SURROGATE, b"x"), Entry(b'["1", "set-config","k"]', b"x"), Entry(b"junk", b"x")]
    )
    assert written.config() == {}
    assert [one.offset for one in written.remove_quarantined([0, 1])] == [0, 1]
    written.log.compact()
    again = stream(written.log)  # type: ignore[arg-type]
    assert again.config() == {}
    assert [one.offset for one in again.quarantined] == [2]


def test_an_input_record_without_a_stream_is_passed_over() -> None:
    written = stream()
    written.log.append(
        [Entry(NO_STREAM, value("u1")), Entry(b'[1,"grete-input-stream","local.in"]', value("u2"))]
    )
    assert read_input_uids(written) == {SystemStream("local", "in"): "u2"}
    assert [one.offset for one in written.quarantined] == [0]


def test_thousands_of_values_that_are_no_json_are_read_in_their_own_time() -> None:
    def seconds(count: int) -> float:
        written = stream()
        written.log.append([Entry(b'[1,"set-config","k%d"]' % n, b"no json") for n in range(count)])
        written.catch_up()
        started = time.process_time()
        assert written.config() == {}
        assert written.quarantined_count() == count
        return time.process_time() - started

    few, many = (min(seconds(count) for _ in range(3)) for count in (1_000, 16_000))
    assert many < 100 * few  # it was 250 times as long for 16 times as many


@pytest.mark.parametrize("number", ["x", "-1", str(MOST_PARTITIONS), "9" * 30, "²"])
def test_a_changelog_partition_that_no_stream_has_is_shown_and_not_followed(number: str) -> None:
    written = stream()
    written.log.append([Entry(b'[1,"set-changelog","Partition 0"]', value(number))])
    mapping = ChangelogMapping(written)
    assert (mapping.read(), mapping.unreadable()) == ({}, {"Partition 0": number})
    assert [one.offset for one in written.quarantined] == [0]


@pytest.mark.parametrize("partitions", [0, MOST_PARTITIONS + 1, 10**30])
def test_no_stream_is_made_or_grown_beyond_what_a_transaction_can_hold(
    system: LocalSystem, partitions: int
) -> None:
    system.create_stream(StreamSpec("in", 2))
    with pytest.raises(StreamError, match="1 to 1,000,000 partitions"):
        StreamSpec("out", partitions)
    with pytest.raises(StreamError, match="1 to 1,000,000 partitions"):
        system.add_partitions("in", partitions)
    assert system.partition_count("in") == 2


@pytest.fixture
def job(home: Path) -> str:
    with open_job(JobId("job"), must_exist=False) as handle:
        handle.stream.write_config({"job.name": "job"}, run_id="r")
        handle.coordinator_log.append([Entry(SURROGATE, b"x"), Entry(NO_STREAM, value("u"))])
    return "job"


def test_status_and_doctor_name_what_is_not_understood_and_the_command_that_removes_it(
    job: str, capsys: Output
) -> None:
    assert main(["status", "--job", job]) == 0
    shown = capsys.readouterr().out
    assert "2 records of the coordinator stream are not understood" in shown
    assert "offset 3: grete-input-stream 'nodot'" in shown
    assert "message: 2 records are not understood" in shown
    main(["doctor", "--job", job, "-o", "json"])
    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert not findings["coordinator stream"]["ok"]
    assert "grete stream quarantine --job job" in findings["coordinator stream"]["way_out"]


def test_the_command_removes_nothing_without_execute_and_then_what_was_named(
    job: str, capsys: Output
) -> None:
    quarantine = ["stream", "quarantine", "--job", job, "-o", "json"]
    assert main([*quarantine, "--remove-all"]) == 0
    assert main([*quarantine, "--remove", "3", "--execute", "--reason", "a slip"]) == 0
    assert main([*quarantine, "--remove", "3", "--execute"]) == 2
    assert "no record that is set aside has offset 3" in capsys.readouterr().err
    with open_job(JobId(job)) as handle:
        assert [one.offset for one in handle.quarantined()] == [2]
        assert handle.history()[-1].details == {"offsets": "3", "reason": "a slip"}


def test_commands_work_beside_a_key_that_is_no_text(job: str, capsys: Output) -> None:
    for words in (["config", "get"], ["config", "history"], ["history"], ["stream", "dump"]):
        assert main([*words, "--job", job]) == 0
    assert main(["config", "set", "--job", job, "--force", "my.key=1"]) == 0
    assert main(["config", "rollback", "--job", job, "--force"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_task_with_an_unknown_changelog_partition_is_refused_with_the_way_out() -> None:
    from grete.coordinator.job_model import Remembered, calculate
    from grete.coordinator.plan import _lost_partitions

    made = calculate(Settings.of({"task.inputs": "local.in"}), {SystemStream("local", "in"): 1}, Remembered())
    (problem,) = _lost_partitions({"Partition 0": "x", "Partition 9": "y"}, made)  # type: ignore[dict-item]
    assert "Partition 0" in problem
    assert "grete stream quarantine" in problem
