"""The configuration of a clone, outputs compared by keys, and what keeps two jobs from being swapped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import grete
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.clone import clone_config, with_promotion
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.coordinator.assignment_records import ssp_key
from grete.errors import ConfigError, HeldByOther, JobError
from grete.launch.processes import name_of
from grete.metadata.job_state import CloneOrigin, write_origin
from grete.metadata.launches import LaunchRecord, write_launch
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_CHANGELOG, SET_TASK_CONTAINER, SET_TASK_PARTITION
from grete.model.startpoint import Startpoint, StartpointKind
from grete.model.streams import StreamSpec
from grete.operations import clones, open_job
from grete.operations.clone_start import begin_at, begin_at_checkpoint
from grete.operations.clones import swap
from grete.operations.comparison import compare_streams
from grete.operations.configuration import set_config
from grete.operations.job_status import standing_row
from grete.operations.meeting import bring_together, meeting
from grete.systems.local.system import LocalSystem, Message
from grete.testing.job import JobUnderTest

CONFIG = {
    "job.name": "orders",
    "app.name": "orders",
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
    "task.outputs": "local.out,local.more",
    "task.poison.policy": "dead-letter",
    "task.poison.dead-letter.stream": "local.dead",
    "task.checkpoint.consumer.group": "mine",
    "stores.totals.factory": "grete.store.sqlite",
    "stores.totals.changelog": "totals",
    "stores.names.factory": "grete.store.sqlite",
    "job.succeeded.by": "other",
}


def test_a_clone_has_its_own_name_state_and_outputs_and_all_else_of_its_original() -> None:
    made = clone_config(Settings.of(CONFIG), JobId("orders-2"), start="oldest").raw
    changed = {key: value for key, value in made.items() if CONFIG.get(key) != value}
    assert changed == {
        "job.name": "orders-2",
        "job.id": "1",
        "task.outputs.suffix": "-orders-2",
        "task.poison.dead-letter.stream": "local.dead-orders-2",
        "stores.totals.changelog": "totals-orders-2",
        "streams.in.samza.offset.default": "oldest",
    }
    assert CONFIG.keys() - made.keys() == {"job.succeeded.by", "task.checkpoint.consumer.group", "app.name"}
    system = Settings.of(made).system("local")
    names = [system.name_of(stream) for stream in Settings.of(made).task.written_streams]
    assert names == ["out-orders-2", "more-orders-2", "dead-orders-2"]
    again = clone_config(Settings.of(made), JobId("orders-3", "7"), start="upcoming").raw
    assert again["task.outputs.suffix"] == "-orders-2-orders-3-7"


def test_a_clone_of_a_pipeline_writes_folders_and_tables_of_its_own_too() -> None:
    pipeline = {
        "job.name": "p",
        "app.class": "p:P",
        "task.inputs": "local.in",
        "outputs.files.format": "parquet",
        "outputs.files.path": "s3a://bucket/files/",
        "outputs.rows.format": "jdbc",
        "outputs.rows.url": "jdbc:postgresql://host/db",
        "outputs.rows.table": "shop.rows",
    }
    made = clone_config(Settings.of(pipeline), JobId("q", "2"), start="oldest")
    assert {name: one.place for name, one in made.outputs.items()} == {
        "files": "s3a://bucket/files-q-2",
        "rows": "shop.rows_q_2",
    }
    assert {name: one.place for name, one in Settings.of(pipeline).outputs.items()} == {
        "files": "s3a://bucket/files/",
        "rows": "shop.rows",
    }
    with pytest.raises(ConfigError, match="needs another name"):
        clone_config(Settings.of(CONFIG), JobId("orders"), start="oldest")


@pytest.mark.parametrize("wrong", ["local.in.0", "local.in.0=x", "in=3"])
def test_an_end_that_is_none_is_refused(wrong: str) -> None:
    config = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in", "task.inputs.ends": wrong}
    assert any("is not of the form system.stream.partition=offset" in said for said in check(config).errors)


def test_inputs_end_where_they_are_told_and_no_task_takes_it_for_their_end() -> None:
    class Copy(grete.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            collector.send("local.out", envelope.message)

        def on_end_of_stream(self, collector: Any, coordinator: Any) -> None:
            collector.send("local.out", b"end")

    config = {
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "task.outputs.suffix": "-2",
        "task.inputs.ends": "local.in.0=3",
        "systems.local.samza.offset.default": "oldest",
    }
    with JobUnderTest(Copy, config) as job:
        for value in (b"a", b"b", b"c", b"d", b"e"):
            job.send_bytes("local.in", value)
        job.drain()
        assert job.messages("local.out-2") == [b"a", b"b", b"c"]
        assert job.checkpoints()["Partition 0"] == {"local.in.0": 2}


BASE = {
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "job.coordinator.system": "local",
}


class Pair:
    """Two jobs that have committed, and an embedded system with their outputs."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.original, self.clone = JobId("orders"), JobId("orders-2")
        self.system = stack.enter_context(closing(LocalSystem(home / "local", SystemClock())))
        self._stack = stack
        for name in ("in", "out", "out-orders-2"):
            self.system.create_stream(StreamSpec(name, 2))
        for job, more in ((self.original, {}), (self.clone, {"task.outputs.suffix": "-orders-2"})):
            with open_job(job, must_exist=False) as handle:
                handle.stream.write_config({"job.name": job.name, **BASE, **more}, run_id="run-1")
                reads = {
                    ssp_key(SystemStreamPartition("local", "in", p)): f'["Partition {p}"]' for p in (0, 1)
                }
                handle.stream.put(SET_TASK_PARTITION, reads)

    def commit(self, job: JobId, *, of_spark: bool = False, **offsets: int) -> None:
        commits = {
            TaskName(f"Partition {p}"): TaskCommit(
                {SystemStreamPartition("local", "in", p): str(offset)}, has_foreign_sources=of_spark
            )
            for p, offset in enumerate(offsets.values())
        }
        log = self.system.checkpoint_log(checkpoint_log_name(job))
        log.append(commit_entries(commits, grouper="GroupByPartitionFactory"))

    def write(self, stream: str, **values: str) -> None:
        self.system.append(stream, [Message(k.encode(), v.encode(), 0, 0) for k, v in values.items()])


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(home, stack)


def test_status_says_what_a_job_has_to_do_with_another_version_of_itself(pair: Pair) -> None:
    pair.commit(pair.original, a=4, b=7)
    made = clone_config(Settings.of({"job.name": "orders", **BASE}), JobId("orders-3"))
    begin_at(pair.original, made, Startpoint(StartpointKind.TIMESTAMP, 0, timestamp_ms=5))
    assert message(JobId("orders-3")) == "a clone of orders"
    assert message(pair.original) == ""
    with open_job(pair.original) as handle:
        set_config(handle, {"job.succeeded.by": "orders-3"}, reason="")
    with open_job(JobId("orders-3")) as handle:
        set_config(handle, {"job.promoted.over": "orders"}, reason="")
    assert message(pair.original) == "orders-3 goes on where it ended"
    assert message(JobId("orders-3")) == "it writes the streams of orders"


def message(job: JobId) -> str:
    with open_job(job) as handle:
        return str(standing_row(handle)["message"])


def test_the_last_value_of_each_key_is_compared(pair: Pair) -> None:
    pair.write("out", ann="1", bob="1", cyd="1")
    pair.write("out", ann="2")
    pair.write("out-orders-2", ann="2", bob="9", dan="1")
    with open_job(pair.original) as original, open_job(pair.clone) as clone:
        [found] = compare_streams(original, clone)
    assert (found.output, found.other) == ("local.out", "local.out-orders-2")
    assert (found.records, found.other_records, found.same) == (4, 3, 1)
    assert (found.differ, found.missing, found.more) == (1, 1, 1)
    assert found.examples == ["bob", "cyd", "dan"]
    assert not found.is_equal


def test_what_the_original_wrote_while_its_checkpoints_were_read_may_be_of_before(pair: Pair) -> None:
    """Where the clone has no such key; what it has is compared all the same."""
    pair.write("out", old="1")
    pair.write("out", ann="1", bob="1", cyd="1")
    pair.write("out", dan="1", bob="2")
    pair.write("out-orders-2", cyd="2", dan="1")
    with open_job(pair.original) as original, open_job(pair.clone) as clone:
        write_origin(clone.stream, CloneOrigin("orders", {"local.out": {0: 1}}, {"local.out": {0: 4}}))
        [found] = compare_streams(original, clone)
    assert (found.same, found.differ, found.missing, found.more) == (1, 1, 1, 0)
    assert found.examples == ["cyd", "bob"]


def test_a_clone_of_a_job_that_runs_needs_a_checkpoint_that_says_where_its_stores_stood(pair: Pair) -> None:
    pair.system.append("in", [Message(b"k", b"v", 0, n % 2) for n in range(20)])
    pair.commit(pair.original, a=4, b=7)
    stateful = {"job.name": "orders", **BASE, "stores.totals.factory": "grete.store.sqlite"}
    with open_job(pair.original) as original:
        original.stream.write_config({**stateful, "stores.totals.changelog": "totals"}, run_id="run-2")
        for kind in (SET_CHANGELOG, SET_TASK_CONTAINER):
            original.stream.put(kind, {f"Partition {p}": str(p) for p in (0, 1)})
        pair.system.create_stream(StreamSpec("totals", 2, compacted=True))
        made = clone_config(original.settings, JobId("orders-3"))
        with (
            original.election.stopped("it runs"),
            pytest.raises(JobError, match="does not say where its store"),
        ):
            begin_at_checkpoint(pair.original, made, lambda address: None)
        begin_at_checkpoint(pair.original, made, lambda address: None)


def test_numbers_of_last_values_are_summed_in_whatever_order_they_come(pair: Pair) -> None:
    values = (
        '{"n": 1, "eur": 0.1, "ok": true}',
        '{"n": 2, "eur": 0.2}',
        '{"eur": 0.3, "of": "x"}',
        "7",
        "text",
    )
    pair.write("out", **{f"k{place}": value for place, value in enumerate(values)})
    pair.write("out-orders-2", **{f"k{place}": values[-1 - place] for place in range(5)}, more='{"qty": 4}')
    with open_job(pair.original) as original, open_job(pair.clone) as clone:
        [found] = compare_streams(original, clone)
    assert found.sums == {"eur": (0.6, 0.6), "n": (3, 3), "qty": (0, 4), "value": (7, 7)}


def test_they_meet_at_the_higher_offset_of_each_partition(pair: Pair) -> None:
    pair.commit(pair.original, a=9, b=4)
    pair.commit(pair.clone, a=5, b=7)
    with open_job(pair.original) as original, open_job(pair.clone) as clone:
        met = meeting(original, clone)
    assert sorted(met.at.values()) == [8, 10]
    assert list(met.behind) == [pair.original, pair.clone]
    pair.commit(pair.clone, a=9, b=7)
    ran: list[str] = []

    def run(job: JobId) -> None:
        with open_job(job) as handle:
            ran.append(handle.config()["task.inputs.ends"])
        pair.commit(job, a=9, b=7)

    bring_together([pair.original, pair.clone], run)
    assert ran == ["local.in.0=10,local.in.1=8"]
    with open_job(pair.original) as handle:
        assert "task.inputs.ends" not in handle.config()


def test_a_job_that_did_not_come_there_or_never_ran_is_named(pair: Pair) -> None:
    pair.commit(pair.original, a=9, b=4)
    with pytest.raises(JobError, match=r"job orders-2 has no checkpoints: run it first"):
        bring_together([pair.original, pair.clone], lambda job: None)
    pair.commit(pair.clone, a=5, b=7)
    with pytest.raises(JobError, match=r"orders, orders-2: not at the offsets that they were to be run to"):
        bring_together([pair.original, pair.clone], lambda job: None)
    with pytest.raises(JobError, match="do not stand at the same offsets"):
        swap(pair.original, pair.clone)


def test_where_one_went_further_than_it_was_told_the_other_follows(pair: Pair) -> None:
    """As a pipeline that had planned a batch when it was stopped."""
    pair.commit(pair.original, a=9, b=9)
    pair.commit(pair.clone, a=5, b=5)
    ran: list[str] = []

    def run(job: JobId) -> None:
        ran.append(job.name)
        pair.commit(job, a=12, b=9)

    met = bring_together([pair.original, pair.clone], run)
    assert ran == ["orders-2", "orders"]
    assert sorted(met.at.values()) == [10, 13]


def test_sources_of_sparks_own_have_no_offsets_to_meet_at(pair: Pair) -> None:
    pair.commit(pair.original, a=9, b=9)
    pair.commit(pair.clone, of_spark=True, a=9, b=9)
    with pytest.raises(JobError, match=r"orders-2 reads sources of Spark's beside task.inputs"):
        bring_together([pair.original, pair.clone], lambda job: None)


def test_tasks_that_are_gone_hold_nobody_up_and_inputs_have_an_end_no_longer_than_it_takes(
    pair: Pair,
) -> None:
    pair.commit(pair.original, a=9, b=7, gone=1)
    pair.commit(pair.clone, a=5, b=7)

    def fail(job: JobId) -> None:
        raise JobError("no")

    with pytest.raises(JobError, match="no"):
        bring_together([pair.original, pair.clone], fail)
    with open_job(pair.clone) as handle:
        assert "task.inputs.ends" not in handle.config()
    pair.commit(pair.clone, a=9, b=7)
    assert sorted(bring_together([pair.original, pair.clone], fail).at.values()) == [8, 10]


def test_a_swap_that_was_cut_off_is_finished_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.commit(pair.original, a=9, b=7)
    pair.commit(pair.clone, a=9, b=7)
    set_config: Callable[..., Any] = clones.set_config

    def cut_off(handle: Any, changes: Any, **how: Any) -> None:
        if handle.job == pair.clone:
            raise KeyboardInterrupt
        set_config(handle, changes, **how)

    with monkeypatch.context() as cut:
        cut.setattr(clones, "set_config", cut_off)
        with pytest.raises(KeyboardInterrupt):
            swap(pair.original, pair.clone)
    with open_job(pair.original) as original, open_job(pair.clone) as clone:
        assert original.config()["job.succeeded.by"] == "orders-2"
        assert "task.outputs.suffix" in clone.config(), "none of both writes into the streams"
    command = ["job", "promote", "--job", "orders-2", "--over", "orders", "-o", "json"]
    assert main([*command, "--execute"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["promoted"], shown["equal"]) == (True, True)
    assert shown["offsets"] == {"local.in.0": 10, "local.in.1": 8}
    with open_job(pair.clone) as clone:
        assert "task.outputs.suffix" not in clone.config()
        assert [row.event for row in clone.history()] == ["promoted"]
        file = Settings.of({**CONFIG, "job.name": "orders-2", "task.outputs.suffix": "-orders-2"})
        again = with_promotion(file, clone.settings)
    assert again.job.promoted_over == "orders"
    assert again.task.own_outputs == Settings.of(CONFIG).task.own_outputs, "whatever the clone's file says"
    assert with_promotion(file, Settings.of({})) is file


def test_nothing_is_swapped_while_one_of_them_runs(pair: Pair) -> None:
    pair.commit(pair.original, a=9, b=7)
    pair.commit(pair.clone, a=9, b=7)
    said = r"job orders-2 is held by .*: stop it first: grete stop --job orders-2"
    with open_job(pair.clone) as clone, clone.election.stopped(""):
        with pytest.raises(HeldByOther, match=said):
            bring_together([pair.original, pair.clone], lambda job: None)
        with pytest.raises(HeldByOther, match=said):
            swap(pair.original, pair.clone)


def test_a_container_that_runs_on_without_a_coordinator_is_ended_first(pair: Pair) -> None:
    pair.commit(pair.original, a=9, b=7)
    pair.commit(pair.clone, a=9, b=7)
    with open_job(pair.original) as original:
        write_launch(
            original.stream, ContainerId("0"), LaunchRecord(1, 1, str(name_of(os.getpid())), "", "", "", 1)
        )
    with pytest.raises(JobError, match="container 0 of job orders runs on without a coordinator"):
        swap(pair.original, pair.clone)


def test_commands_say_what_comes_next(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders-3.properties"
    clone = ["job", "clone", "--job", "orders", "--as", "orders-3", "--to-file", str(file)]
    assert main(clone) == 0
    assert "grete job compare --job orders-3 --over orders" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    assert main([*clone, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["original"] == "orders"
    pair.write("out", ann="1")
    both = ["--job", "orders-2", "--over", "orders"]
    assert main(["job", "compare", *both]) == 1
    assert (said := capsys.readouterr().out).endswith("local.out: the sum of value is 1, the clone's 0\n")
    assert "ann" in said
    assert main(["job", "compare", *both, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["outputs"][0]["examples"] == ["ann"]
