"""Outputs of another system than the job's own: appended before the commit, so at least once there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import grete
from grete import failpoints
from grete.clock import SystemClock
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.systems.local.system import LocalSystem
from grete.systems.outputs import OutputSystems
from grete.testing.job import JobUnderTest

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out,other.mirror",
    "systems.other.samza.factory": "local",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.other.samza.key.serde": "string",
    "systems.other.samza.msg.serde": "string",
    "systems.local.samza.offset.default": "oldest",
}


def mirror(
    envelope: grete.IncomingMessageEnvelope,
    collector: grete.MessageCollector,
    coordinator: grete.TaskCoordinator,
) -> None:
    collector.send("local.out", envelope.message, key=envelope.key)
    collector.send("other.mirror", f"<{envelope.message}>", key=envelope.key, headers={"by": "mirror"})


@pytest.fixture
def job() -> Iterator[JobUnderTest]:
    with JobUnderTest(mirror, CONFIG, partitions={"local.in": 2}) as made:
        yield made


def test_an_output_of_another_system_has_its_serdes_keys_and_headers(job: JobUnderTest) -> None:
    for number in range(4):
        job.send("local.in", number, key=f"k{number}")
    job.run()
    assert sorted(job.messages("local.out")) == [0, 1, 2, 3]
    there = {one.key: (one.message, list(one.headers)) for one in job.outputs("other.mirror")}
    assert there == {f"k{number}": (f"<{number}>", [("by", b"mirror")]) for number in range(4)}
    own = {one.key: one.partition for one in job.outputs("local.out")}
    assert {one.key: one.partition for one in job.outputs("other.mirror")} == own


def test_it_is_there_before_the_commit_and_twice_when_that_fails(
    job: JobUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send("local.in", 1)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "_armed", failpoints._parse("executor.before-commit:raise"))
        with pytest.raises(Exception, match=r"executor\.before-commit"):
            job.run()
    assert (job.messages("local.out"), job.messages("other.mirror")) == ([], ["<1>"])
    job.restart()
    job.run()
    assert (job.messages("local.out"), job.messages("other.mirror")) == ([1], ["<1>", "<1>"])


def test_nothing_is_committed_when_the_other_system_refuses(job: JobUnderTest) -> None:
    def send_large(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("local.out", 1)
        collector.send("other.mirror", "x", partition=9)

    with JobUnderTest(send_large, CONFIG) as other:
        other.send("local.in", 1)
        with pytest.raises(grete.GreteError, match=r"other\.mirror has partitions 0 to 0, not 9"):
            other.run()
        assert other.messages("local.out") == []


def test_only_what_is_declared_can_be_sent_elsewhere() -> None:
    def send(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("other.undeclared", "x")

    with JobUnderTest(send, CONFIG) as job:
        job.send("local.in", 1)
        with pytest.raises(grete.GreteError, match=r"cannot send to other\.undeclared.*task\.outputs"):
            job.run()


def test_a_system_is_opened_when_something_goes_there(tmp_path: Path) -> None:
    config = {**CONFIG, "systems.other.path": str(tmp_path / "other")}
    clock = SystemClock()
    with closing(LocalSystem(tmp_path / "own", clock)) as own:
        outputs = OutputSystems(Settings.of(config), "local", own, tmp_path, clock)
        assert outputs.written(SystemStream("local", "out")) == (own, "out")
        assert not (tmp_path / "other").exists()
        system, name = outputs.written(SystemStream("other", "mirror"))
        assert (name, system is own, (tmp_path / "other").exists()) == ("mirror", False, True)
        outputs.close()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"task.poison.dead-letter.stream": "other.dead"}, "task.poison.dead-letter.stream names other.dead"),
        (
            {"task.poison.dead-letter.stream": "other.mirror"},
            "task.poison.dead-letter.stream names other.mirror",
        ),
        ({"task.class": "", "app.class": "m:P"}, "task.outputs names other.mirror"),
    ],
)
def test_what_commits_with_checkpoints_and_what_spark_writes_is_of_the_jobs_own_system(
    changed: dict[str, str], problem: str
) -> None:
    config = {"job.name": "j", "task.class": "m:C", **CONFIG, **changed}
    errors = check({key: value for key, value in config.items() if value}).errors
    assert [error for error in errors if problem in error]
    assert not check({"job.name": "j", "task.class": "m:C", **CONFIG}).errors
