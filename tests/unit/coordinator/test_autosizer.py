"""A coordinator that decides how many containers its job has: what it measures, writes and leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, UnsetType
from tests.support.watched_job import IN_FORCE, Watched

from grete.config.derived import canonical_keys, with_autosizing_results
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.coordinator.autosizer import Autosizer
from grete.coordinator.events import ModelChanged
from grete.metadata.history import History
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.wire.container_protocol import Heartbeat
from grete.wire.metric_values import Durations, Level, ReportedMetrics

CONFIG = {
    "job.name": "orders",
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
    "systems.local.samza.offset.default": "oldest",
    "job.autosizing.enabled": "true",
    "job.autosizing.policy": "lag",
}


PIPELINE = {
    "task.class": "",
    "app.class": "orders:Orders",
    "spark.master": "spark://master:7077",
    "job.autosizing.executor.most": "4",
}


class Sized:
    """A job of four tasks whose containers process ten records a second each; of a pipeline its executors do."""

    executors: int | None = None
    of_a_batch, batch_ms = 100, 0.0

    def __init__(self, home: Path, system: LocalSystem, stack: ExitStack, **more: str) -> None:
        system.create_stream(StreamSpec("in", 4))
        self.system, self.running, self.records = system, 1, 0
        self.watched = Watched(home, stack, config={**CONFIG, **more})
        slots = SimpleNamespace(slots=dict)
        self.watched.view.containers.loop = SimpleNamespace(registry=slots, state=IN_FORCE, awaited={})  # type: ignore[assignment]

    def pass_time(self, seconds: int) -> list[ModelChanged]:
        """Every ten seconds all containers that run say so; the models that the loop gets."""
        found = []
        for _ in range(seconds // 10):
            self.watched.clock.advance(10)
            self.records += 100 * (self.executors or 1)
            for container in range(self.running):
                beat = Heartbeat(1, "running", records=self.records, metrics=self._metrics())
                self.watched.view.containers._progress.record(str(container), beat)
            assert self.watched.view.monitors is not None
            self.watched.view.monitors.tick()
            found += self.watched.changed_models()
        return found

    def _metrics(self) -> ReportedMetrics | UnsetType:
        if self.executors is None:
            return UNSET
        batches = self.records // self.of_a_batch
        query = {"executors": Level(self.executors), "batch-ms": Durations(batches, batches * self.batch_ms)}
        return ReportedMetrics({"spark.query": query}, {})

    def count(self) -> int:
        return len(self.watched.model.containers)


@pytest.fixture
def make(home: Path, system: LocalSystem) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **more: Sized(home, system, stack, **more)


def send(job: Sized, records: int) -> None:
    job.system.append("in", [Message(None, b"", 0, i % 4) for i in range(records)])


def test_a_job_that_is_far_behind_gets_containers_and_its_history_says_why(make: Any) -> None:
    job = make()
    send(job, 4_000)
    assert job.pass_time(80) == []
    [changed] = job.pass_time(30)
    assert "configuration change: job.autosizing.container.count, job.container.count" in changed.cause
    assert job.count() == 2
    assert job.watched.stream.config()["job.autosizing.container.count"] == "2"
    [why] = [
        row.details["reason"] for row in History(job.watched.stream).rows() if row.event == "reconfigured"
    ]
    assert "autosizing, 1 to 2 containers: 4000 records behind, 400 s" in why
    assert "one container does 10 records/s" in why
    assert job.pass_time(300) == [], "one of them does not run yet"
    assert job.watched.view.sizing == "waits until 2 containers run"
    job.running = 2
    [_] = job.pass_time(110)
    assert job.count() == 4


def test_what_an_operator_wrote_meanwhile_stays(make: Any) -> None:
    job = make()
    send(job, 4_000)
    job.pass_time(80)
    job.watched.stream.write_config(
        {**job.watched.stream.config(), "task.commit.ms": "777"}, run_id="run", reason="by hand"
    )
    job.pass_time(60)
    assert job.count() == 2
    assert job.watched.stream.config()["task.commit.ms"] == "777"


def test_its_bounds_may_be_changed_while_it_runs(make: Any) -> None:
    job = make(**{"job.container.count": "2"})
    job.running = 2
    assert job.pass_time(60) == []
    least = {**job.watched.stream.config(), "job.autosizing.container.least": "3"}
    job.watched.stream.write_config(least, run_id="run", reason="by hand")
    job.pass_time(20)
    assert job.count() == 3


class SizedPipeline:
    """What is decided for a pipeline on a cluster, whose executors process ten records a second each."""

    def __init__(self, job: Sized, executors: int | None, **more: str) -> None:
        job.executors = executors
        self.job, self.more = job, more
        self._autosizer = Autosizer(job.watched.view, job.watched.clock)

    def pass_time(self, seconds: int) -> list[str]:
        found = []
        for _ in range(seconds // 10):
            self.job.pass_time(10)
            if (sizing := self._autosizer.look(Settings.of({**CONFIG, **PIPELINE, **self.more}))) is not None:
                self.more["job.autosizing.executor.count"] = str(sizing.containers)
                found.append(str(sizing))
        return found

    @property
    def standing(self) -> str:
        return self._autosizer.standing


def test_a_pipeline_that_is_far_behind_gets_executors(make: Any) -> None:
    pipeline = SizedPipeline(make(**{"job.autosizing.policy": "outside"}), None)
    assert pipeline.pass_time(60) == []
    assert "it is not known" in pipeline.standing
    pipeline.job.executors = 1
    send(pipeline.job, 8_000)
    [why] = pipeline.pass_time(120)
    assert why.startswith("1 to 2 executors: 8000 records behind, 800 s")
    assert why.endswith("one executor does 10 records/s")
    assert pipeline.pass_time(60) == []
    assert pipeline.standing == "waits until 2 executors run"
    pipeline.job.executors = 2
    [why] = pipeline.pass_time(120)
    assert why.startswith("2 to 4 executors: ")


def test_executors_that_the_cluster_does_not_give_are_not_asked_for_again(make: Any) -> None:
    four = {"job.autosizing.executor.count": "4"}
    pipeline = SizedPipeline(make(**{"job.autosizing.policy": "outside"}), 2, **four)
    send(pipeline.job, 40_000)
    assert pipeline.pass_time(400) == []
    assert pipeline.standing.startswith("holds at 2: ")
    assert pipeline.standing.endswith("; no more executors are allowed, or there is nothing for them")
    pipeline.job.executors = 4
    assert pipeline.pass_time(100) == []
    assert pipeline.standing.startswith("holds at 4: ")


def test_a_pipeline_gives_back_of_the_executors_that_it_has_and_not_of_those_that_it_asked_for(
    make: Any,
) -> None:
    four = {"job.autosizing.executor.count": "4", "job.autosizing.down.after.ms": "60000"}
    pipeline = SizedPipeline(make(**{"job.autosizing.policy": "outside"}), 3, **four)
    assert [why.partition(":")[0] for why in pipeline.pass_time(300)] == ["3 to 2 executors"]


def test_a_pipeline_whose_batches_take_longer_than_its_lag_target_gets_shorter_ones(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    most = {"task.max.records.per.batch": "2000", "job.autosizing.executor.most": "20"}
    job = make(**{**PIPELINE, **most, "job.autosizing.lag.ms": "5000", "job.autosizing.executor.count": "20"})
    job.executors, job.of_a_batch, job.batch_ms = 20, 2_000, 10_000.0
    send(job, 100_000)
    job.pass_time(60)
    config = job.watched.stream.config()
    assert config["job.autosizing.batch.records"] == "250"
    assert Settings.of(config).autosizing.batch_records == 250
    fewer = Settings.of({**config, "task.max.records.per.batch": "100"})
    assert fewer.autosizing.batch_records == 100, "an operator's word for fewer counts"
    off = Settings.of({**config, "job.autosizing.enabled": "false"})
    assert off.autosizing.batch_records == 2_000
    said = "autosizing, 2000 to 250 records a batch: a full batch took 10 s, 200 records/s; the lag target is 5 s"
    assert said in caplog.messages


@pytest.mark.parametrize("off", [{}, {"job.autosizing.enabled": "false"}])
def test_where_it_is_not_the_coordinators_nothing_is_decided(make: Any, off: dict[str, str]) -> None:
    job = make(**{"job.autosizing.policy": "outside", **off})
    send(job, 4_000)
    assert job.pass_time(300) == []
    assert job.watched.view.sizing == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"job.autosizing.enabled": "false"}, "without job.autosizing.enabled=true"),
        (PIPELINE | {"spark.master": "local[2]"}, "grows by executors, and spark.master=local[2] has none"),
        (
            PIPELINE | {"spark.dynamicAllocation.enabled": "true"},
            "Spark decides by itself how many executors",
        ),
        (PIPELINE | {"job.container.count": "2"}, "are the executors of one container"),
        (PIPELINE | {"job.autosizing.executor.most": ""}, "needs job.autosizing.executor.most"),
        (
            PIPELINE | {"job.autosizing.executor.least": "5"},
            "least=5 is more than job.autosizing.executor.most=4",
        ),
        ({"job.launcher": "thread"}, "the coordinator starts no containers here"),
        (
            {"job.autosizing.container.least": "3", "job.autosizing.container.most": "2"},
            "least=3 is more than job.autosizing.container.most=2",
        ),
        ({"job.autosizing.utilization.percent": "95"}, "a percentage from 10 to 90"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_with_the_way_out(more: dict[str, str], said: str) -> None:
    config = {key: value for key, value in {**CONFIG, **more}.items() if value}
    assert any(said in error for error in check(canonical_keys(config)).errors)


def test_a_file_that_is_submitted_again_keeps_the_size_and_its_own_rule() -> None:
    in_force = Settings.of({**CONFIG, "job.autosizing.container.count": "3", "job.autosizing.lag.ms": "1"})
    file = Settings.of({key: value for key, value in CONFIG.items() if key != "job.autosizing.policy"})
    again = with_autosizing_results(file, in_force).raw
    assert again["job.container.count"] == "3"
    assert "job.autosizing.lag.ms" not in again
    assert "job.autosizing.policy" not in again
