"""Containers that are applications of YARN, over a ResourceManager that is away, refuses, and forgets.

`spark-submit` is a program that does as it is told. Against the real ones: `tests/fault/test_containers_on_yarn.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.support.turned_launcher import TurnedLauncher

from grete.config.properties import parse_properties
from grete.deploy.container_applications import ContainerApplications, ContainerTemplate
from grete.deploy.resource_manager import ResourceManager, YarnApplication
from grete.errors import ConfigError, JobError, ManagerUnreachable
from grete.launch.base import ContainerStart
from grete.model.ending import ContainerEnd, ExitCode, Failure
from grete.model.fence import container_epoch
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock
from grete.testing.waiting import eventually

ZERO, ONE, TWO = (ContainerId(number) for number in "012")
LEADERSHIP = 3
STAGED = "hdfs\\://one/staging/application_1_1"
SUBMIT = """#!/bin/sh
echo "$HADOOP_CONF_DIR $HADOOP_USER_NAME" > {folder}/hadoop
for word in "$@"; do echo "$word"; done > {folder}/words.part
mv {folder}/words.part {folder}/words
while [ -e {folder}/waits ]; do sleep 0.02; done
{then}
"""
TEMPLATE = ContainerTemplate(
    "counting-1",
    "grete-counting",
    "d1",
    {
        "spark.yarn.tags": "flights",
        "spark.jars": "/opt/kafka.jar,hdfs://one/own.jar",
        "spark.yarn.jars": "local:/opt/spark/jars/*",
        "spark.driver.memory": "1g",
    },
    {"__package": "/home/ann/application.tgz", "data": "hdfs://one/data.tgz"},
    {"ca.pem": "/home/ann/ca.pem"},
    has_secrets=True,
)


@dataclass
class Applications(ResourceManager):
    """Applications as a ResourceManager has them; `problem` is what it answers instead."""

    there: list[YarnApplication] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    problem: Exception | None = None
    going: frozenset[str] = frozenset()

    def decommissioned(self) -> frozenset[str]:
        return self.going

    def find(self, tag: str) -> list[YarnApplication]:
        if self.problem is not None:
            raise self.problem
        return [one for one in self.there if tag in one.tags]

    def kill(self, application: str) -> None:
        self.killed.append(application)

    def accept(self, start: ContainerStart, deployment: str = "d1") -> YarnApplication:
        name = f"grete-counting-c{start.container_id}-{start.epoch}"
        tags = ",".join(
            ["team-c1-7", name, "grete-counting-containers", f"deployment-{deployment}", "flights"]
        )
        number = len(self.there) + 1
        self.there.append(
            YarnApplication(f"application_1_{number}", "RUNNING", "UNDEFINED", tags, "ann", 1, "")
        )
        return self.there[-1]

    def becomes(self, number: int, **changed: str) -> None:
        self.there[number - 1] = msgspec.structs.replace(self.there[number - 1], **changed)


@dataclass
class World:
    folder: Path
    manager: Applications
    clock: ManualClock
    launcher: TurnedLauncher
    applications: ContainerApplications

    def then(self, line: str) -> None:
        """What `spark-submit` does at last."""
        submit = self.folder / "spark" / "bin" / "spark-submit"
        submit.parent.mkdir(parents=True, exist_ok=True)
        submit.write_text(SUBMIT.format(folder=self.folder, then=line))
        submit.chmod(0o755)

    def turns_until(self, done: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.launcher.turn()
            return done()

        eventually(turned, "it is so")

    def starts(self, one: ContainerStart) -> str:
        """Start it, and let YARN accept it; returns the id of its application."""
        self.launcher.start(one)
        accepted = self.manager.accept(one)
        self.turns_until(lambda: self.launcher.handle(one.container_id).endswith(accepted.id))
        return accepted.id


def start(number: int = 1, id_: ContainerId = ZERO, leadership: int = LEADERSHIP) -> ContainerStart:
    return ContainerStart(id_, container_epoch(leadership, number), {"TOLD": 'a "quoted" $word'})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    staged = tmp_path / "__spark_conf__" / "__spark_dist_cache__.properties"
    staged.parent.mkdir()
    names = (
        "application.tgz\\#__package",
        "ca.pem\\#ca.pem",
        "kafka.jar\\#kafka.jar",
        "libs.zip\\#__spark_libs__",
    )
    listed = ",".join(f"{STAGED}/{name}" for name in names)
    staged.write_text(f"spark.yarn.cache.filenames={listed}\n")
    file = tmp_path / "container-application.json"
    file.write_text(TEMPLATE.as_json())
    monkeypatch.setenv("SPARK_USER", "ann")
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    manager, clock = Applications([]), ManualClock()
    applications = ContainerApplications.of(file, manager, clock)
    launcher = TurnedLauncher(applications, clock, LEADERSHIP)
    made = World(tmp_path, manager, clock, launcher, applications)
    made.then("exit 0")
    return made


def test_it_is_submitted_with_what_the_deployment_has_staged_and_found_by_its_tags(world: World) -> None:
    """The machine that has deployed the job, whose files the template names, is not asked for anything."""
    id_ = world.starts(start())
    epoch = container_epoch(LEADERSHIP, 1)
    assert world.launcher.handle(ZERO) == f"application/grete-counting-c0-{epoch}/{id_}"
    words = (world.folder / "words").read_text().splitlines()
    given = dict(pairwise(words))
    own = world.folder / "containers" / f"grete-counting-c0-{epoch}"
    assert given["--name"] == "grete counting-1 container 0"
    assert given["--archives"] == (
        "hdfs://one/staging/application_1_1/application.tgz#__package,hdfs://one/data.tgz#data"
    )
    assert given["--files"].split(",") == [
        str(world.folder / "job.properties"),
        str(own / "container.json"),
        str(world.folder / "grete-secrets.json"),
        "hdfs://one/staging/application_1_1/ca.pem#ca.pem",
    ]
    assert words[words.index("--config") :] == [
        *("--config", "job.properties", "--container", "container.json", "--secrets", "grete-secrets.json")
    ]
    properties = parse_properties(Path(given["--properties-file"]).read_text(), origin="it")
    assert properties == {
        "spark.yarn.tags": f"grete-counting-c0-{epoch},grete-counting-containers,deployment-d1,flights",
        "spark.jars": "hdfs://one/staging/application_1_1/kafka.jar,hdfs://one/own.jar",
        "spark.yarn.archive": "hdfs://one/staging/application_1_1/libs.zip",
        "spark.driver.memory": "1g",
        "spark.yarn.maxAppAttempts": "1",
    }
    told = json.loads((own / "container.json").read_text())
    assert told["TOLD"] == 'a "quoted" $word'
    assert told["GRETE_CONTAINER_EPOCH"] == str(epoch)
    said = (world.folder / "hadoop").read_text().split()
    assert said == [str(world.folder / "__spark_conf__/__hadoop_conf__"), "ann"]


def test_without_sparks_list_of_what_was_brought_nothing_is_started(world: World) -> None:
    (world.folder / "__spark_conf__" / "__spark_dist_cache__.properties").unlink()
    with pytest.raises(ConfigError, match=r"__spark_dist_cache__\.properties"):
        ContainerApplications.of(world.folder / "container-application.json", world.manager, world.clock)


def test_a_submission_that_fails_is_an_exit_with_the_end_of_its_log(world: World) -> None:
    world.then("echo 'queue flights is full' >&2; exit 1")
    world.launcher.start(start())
    world.turns_until(lambda: bool(world.launcher._ended))
    [ended] = world.launcher.exits()
    assert (ended.exit_code, ended.may_live) == (1, False)
    assert "queue flights is full" in ended.reason


def test_a_submission_that_yarn_does_not_know_has_failed(world: World) -> None:
    world.launcher.start(start())
    world.turns_until(lambda: bool(world.launcher._ended))
    [ended] = world.launcher.exits()
    assert "YARN knows no application of grete-counting-c0-" in ended.reason


def test_a_submission_that_takes_too_long_is_ended(world: World) -> None:
    (world.folder / "waits").touch()
    world.launcher.start(start())
    world.clock.advance(400.0)
    world.turns_until(lambda: bool(world.launcher._ended))
    assert world.applications._submitted == {}


def test_while_the_resource_manager_is_away_nothing_has_failed(world: World) -> None:
    world.launcher.start(start())
    world.manager.problem = ManagerUnreachable("no answer")
    eventually(
        lambda: all(one.process.poll() is not None for one in world.applications._submitted.values()),
        "it ended",
    )
    for _ in range(3):
        with pytest.raises(ManagerUnreachable):
            world.launcher.turn()
    assert world.launcher.exits() == []
    world.manager.problem = None
    accepted = world.manager.accept(start())
    assert world.launcher.look() == []
    assert world.launcher.handle(ZERO).endswith(accepted.id)


def test_two_are_submitted_at_once_and_the_others_after_them(world: World) -> None:
    """Each is a JVM, in the memory of the coordinator's application."""
    (world.folder / "waits").touch()
    for id_ in (ZERO, ONE, TWO):
        world.launcher.start(start(int(id_) + 1, id_))
        world.manager.accept(start(int(id_) + 1, id_))
    assert len(world.applications._submitted) == 2
    (world.folder / "waits").unlink()
    world.turns_until(lambda: all("application_" in world.launcher.handle(id_) for id_ in (ZERO, ONE, TWO)))


@pytest.mark.parametrize("is_accepted", [False, True])
def test_one_that_is_killed_while_it_is_submitted_is_ended_wherever_it_has_come_to(
    world: World, is_accepted: bool
) -> None:
    (world.folder / "waits").touch()
    world.launcher.start(start())
    world.launcher.kill(ZERO)
    [ended] = world.launcher.exits()
    assert (ended.exit_code, ended.reason) == (-9, "killed before it was started")
    assert world.applications._submitted == {}
    if is_accepted:
        world.manager.accept(start())
    world.launcher.turn()
    assert world.manager.killed == (["application_1_1"] if is_accepted else [])


@pytest.mark.parametrize(
    ("state", "code", "may_live", "said"),
    [
        ({"final_status": "SUCCEEDED", "diagnostics": ""}, ExitCode.OK, False, ""),
        (
            {"final_status": "FAILED", "diagnostics": "User application exited with status 3"},
            ExitCode.POISON,
            False,
            "KeyError 'page' at kafka.in.0 offset 4",
        ),
        (
            {"final_status": "FAILED", "diagnostics": "User application exited with status 1"},
            ExitCode.FAILED,
            False,
            "it could not say why",
        ),
        (
            {"final_status": "FAILED", "diagnostics": "User application exited with status 137"},
            -9,
            False,
            "killed by signal 9 (SIGKILL)",
        ),
        (
            {"final_status": "FAILED", "diagnostics": "Container released on a *lost* node"},
            -9,
            True,
            "application_1_1 failed: Container released on a *lost* node",
        ),
        (
            {"final_status": "KILLED", "diagnostics": "Application killed by user."},
            -9,
            True,
            "application_1_1 killed: Application killed by user.",
        ),
    ],
)
def test_what_it_ended_with_is_sparks_code_and_the_words_of_the_container(
    world: World, state: dict[str, str], code: int, may_live: bool, said: str
) -> None:
    """Of an end that Spark has no code of nobody knows whether the process has ended."""
    words = {
        ExitCode.OK: ContainerEnd(ExitCode.OK),
        ExitCode.POISON: ContainerEnd(
            ExitCode.POISON, Failure("KeyError", "'page'", ssp="kafka.in.0", offset="4")
        ),
    }
    heard = words.get(ExitCode(code)) if code >= 0 else None
    world.launcher.last_words = lambda container, epoch: heard
    world.starts(start())
    world.manager.becomes(1, state="FINISHED", **state)
    [ended] = world.launcher.look()
    assert (ended.exit_code, ended.may_live) == (code, may_live)
    assert said in ended.reason
    assert world.launcher.look() == []


def test_one_that_is_killed_is_asked_of_yarn_once_and_given_up_when_it_does_not_end(world: World) -> None:
    id_ = world.starts(start())
    world.launcher.kill(ZERO)
    assert world.launcher.look() == []
    assert world.manager.killed == [id_]
    world.clock.advance(12.0)
    [ended] = world.launcher.look()
    assert (ended.exit_code, ended.may_live, ended.left) == (-9, True, False)


def test_it_leaves_a_node_that_is_decommissioned_and_has_not_failed(world: World) -> None:
    id_ = world.starts(start())
    world.manager.becomes(1, am_host_http_address="node-7:8042")
    world.manager.going = frozenset({"node-7:8042"})
    assert world.launcher.look() == []
    world.clock.advance(10.0)
    assert [world.launcher.look(), world.launcher.look()] == [[], []]
    assert world.manager.killed == [id_]
    world.manager.becomes(1, state="KILLED", final_status="KILLED")
    [ended] = world.launcher.look()
    assert (ended.left, ended.may_live, ended.exit_code) == (True, True, -9)


def test_who_may_not_ask_for_nodes_sees_his_containers_nevertheless(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> frozenset[str]:
        raise JobError("403")

    monkeypatch.setattr(world.manager, "decommissioned", refuse)
    world.starts(start())
    world.manager.becomes(1, state="FINISHED", final_status="SUCCEEDED")
    world.launcher.last_words = lambda container, epoch: ContainerEnd(ExitCode.OK)
    [ended] = world.launcher.look()
    assert ended.exit_code == ExitCode.OK


def test_the_next_leader_adopts_what_was_submitted_and_ends_what_nobody_adopted(world: World) -> None:
    """The handle was written before YARN had said which application it is."""
    world.launcher.start(start())
    handle = world.launcher.handle(ZERO)
    world.manager.accept(start())
    world.manager.accept(start(2, ONE))
    world.manager.accept(start(3, TWO), deployment="another")
    successor = TurnedLauncher(world.applications, world.clock, LEADERSHIP + 1)
    assert successor.adopt(start(), handle)
    assert not successor.adopt(start(2, ONE), handle)
    assert not successor.adopt(start(), handle.replace("application", "pod"))
    assert not successor.adopt(start(), f"{handle}application_1_9")
    assert successor.look() == []
    assert world.manager.killed == ["application_1_2"]


def test_why_one_is_not_begun_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The usual trap: each application has a master, and a queue has room for a tenth of its memory for those."""
    world.launcher.start(start())
    world.manager.accept(start())
    full = "Application is not yet activated. Queue's AM resource limit exceeded."
    world.manager.becomes(1, state="ACCEPTED", diagnostics=full, am_host_http_address="")
    world.turns_until(lambda: world.launcher.awaited() == {ZERO: full})
    for _ in range(3):
        assert world.launcher.look() == []
    assert world.launcher.awaited() == {ZERO: full}
    world.manager.becomes(
        1,
        diagnostics="AM container is launched, waiting for AM container to Register with RM",
        am_host_http_address="node-1:8042",
    )
    assert world.launcher.look() == []
    assert world.launcher.awaited() == {}, "its process has been started"
    assert [record.message.count(full) for record in caplog.records if "waits" in record.message] == [1]


def test_when_it_is_closed_a_submission_goes_with_it_and_containers_stay(world: World) -> None:
    id_ = world.starts(start())
    (world.folder / "waits").touch()
    world.launcher.start(start(2, ONE))
    [under_way] = world.applications._submitted.values()
    world.launcher.abandon()
    world.applications.close()
    assert under_way.process.poll() is not None
    assert id_ not in world.manager.killed


def test_a_folder_that_cannot_be_written_is_an_exit_that_names_it(world: World) -> None:
    (world.folder / "containers").symlink_to("/dev/full")
    world.launcher.start(start())
    [ended] = world.launcher.exits()
    assert str(world.folder / "containers") in ended.reason
    with pytest.raises(JobError):
        world.applications.create(replace(start(), epoch=container_epoch(LEADERSHIP, 9)))
