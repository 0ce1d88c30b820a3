"""The launcher of containers that are pods, over an API server that is away, refuses, and forgets.

Against the real one: `tests/conformance/test_kubernetes.py` and `tests/fault/test_containers_in_pods.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.turned_launcher import TurnedLauncher

from grete.deploy.container_pods import ContainerPods
from grete.deploy.namespace import JobNamespace
from grete.deploy.objects import DEPLOYMENT_LABEL, JOB_LABEL, Object, object_of
from grete.environment import EXIT_FILE
from grete.errors import CoordinationError, CoordinationUnreachable
from grete.exit_report import write_report
from grete.launch.base import ContainerStart
from grete.model.ending import ContainerEnd, ExitCode, Failure
from grete.model.fence import container_epoch
from grete.model.ids import ContainerId
from grete.testing.clock import ManualClock

ZERO = ContainerId("0")
LEADERSHIP = 3
TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": "jobs", "labels": {JOB_LABEL: "grete-counting", DEPLOYMENT_LABEL: "d1"}},
    "spec": {
        "containers": [{"name": "grete", "env": [{"name": "WHO", "value": "template"}]}, {"name": "proxy"}]
    },
}
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "grete-counting", "uid": "set-1"}


@dataclass
class ApiServerOfPods:
    """Pods by their names, as an API server has them; `problem` is what it answers instead."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: Exception | None = None
    removed: list[tuple[str, int | None]] = field(default_factory=list)
    made: int = 0

    def create(self, path: str, document: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        self._answer()
        name = document["metadata"]["name"]
        if name in self.pods:
            return None
        self.made += 1
        own = {"uid": f"uid-{self.made}", "resourceVersion": "1", "creationTimestamp": "2026-01-02T03:04:05Z"}
        self.pods[name] = {
            **document,
            "metadata": {**document["metadata"], **own},
            "status": {"phase": "Pending"},
        }
        return self.pods[name]

    def read(self, path: str, timeout_s: float) -> dict[str, Any] | None:
        self._answer()
        name = path.rpartition("/")[2]
        if name == "own-pod":
            own = {
                "name": name,
                "uid": "u",
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-02T03:04:05Z",
            }
            return {"metadata": {**own, "ownerReferences": [OWNER]}}
        return self.pods.get(name)

    def remove(self, path: str, expected: Any, timeout_s: float, grace_s: int | None = None) -> bool:
        self._answer()
        self.removed.append((path.rpartition("/")[2], grace_s))
        return True

    def _answer(self) -> None:
        if self.problem is not None:
            raise self.problem


@dataclass(frozen=True, slots=True)
class NamespaceOfPods(JobNamespace):
    def seen(self, kind: str, job: str, *also: str) -> tuple[list[Object], str]:
        self.server._answer()  # type: ignore[attr-defined]
        return [object_of(pod) for pod in self.server.pods.values()], "1"  # type: ignore[attr-defined]


@dataclass
class World:
    server: ApiServerOfPods
    clock: ManualClock
    pods: ContainerPods
    launcher: TurnedLauncher

    def pod(self, number: int = 1, id_: ContainerId = ZERO) -> dict[str, Any]:
        return self.server.pods[self.pods.name(start(number, id_))]

    def ends(self, code: int, message: str = "", reason: str = "Error") -> None:
        ended = {"exitCode": code, "message": message, "reason": reason}
        self.pod()["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [
                {"name": "proxy", "state": {"running": {}}},
                {"name": "grete", "state": {"terminated": ended}},
            ],
        }


def start(number: int = 1, id_: ContainerId = ZERO, leadership: int = LEADERSHIP) -> ContainerStart:
    return ContainerStart(id_, container_epoch(leadership, number), {"WHO": "launcher", "TOLD": "a"})


@pytest.fixture
def world(tmp_path: Path) -> World:
    server, clock = ApiServerOfPods(), ManualClock()
    file = tmp_path / "container-pod.json"
    file.write_text(json.dumps(TEMPLATE))
    namespace = NamespaceOfPods(server, "jobs", 1.0)  # type: ignore[arg-type]
    pods = ContainerPods.of(file, namespace, {"GRETE_POD_NAME": "own-pod"})
    return World(server, clock, pods, TurnedLauncher(pods, clock, LEADERSHIP))


def test_a_pod_is_of_the_coordinators_set_and_has_what_the_container_is_told(world: World) -> None:
    world.launcher.start(start())
    pod = world.pod()
    assert pod["metadata"]["ownerReferences"] == [OWNER]
    assert pod["metadata"]["labels"] == {**TEMPLATE["metadata"]["labels"], "grete/container": "0"}  # type: ignore[index]
    ours, other = pod["spec"]["containers"]
    epoch = container_epoch(LEADERSHIP, 1)
    assert {one["name"]: one["value"] for one in ours["env"]} == {
        "WHO": "launcher",
        "TOLD": "a",
        "GRETE_CONTAINER_EPOCH": str(epoch),
    }
    assert other == {"name": "proxy"}
    assert world.launcher.handle(ZERO) == f"pod/grete-counting-c0-{epoch}/uid-1"


def test_what_was_asked_while_the_api_server_was_away_is_done_later_and_once(world: World) -> None:
    world.server.problem = CoordinationUnreachable("no answer")
    world.launcher.start(start())
    assert world.launcher.handle(ZERO).endswith("-c0-3145729/"), "the next leader may find it"
    with pytest.raises(CoordinationUnreachable):
        world.launcher.turn()
    assert world.launcher.exits() == [], "a container is not gone because nobody answers"
    world.server.problem = None
    assert world.launcher.look() == []
    world.launcher.start(start())
    assert (len(world.server.pods), world.server.made) == (1, 1)
    assert world.launcher.handle(ZERO).endswith("/uid-1")


def test_a_pod_whose_making_was_not_answered_is_taken_for_what_it_is(world: World) -> None:
    manifest = world.pods.manifest(start())
    world.server.create("", manifest, 1.0)
    world.launcher.start(start())
    assert world.launcher.handle(ZERO).endswith("/uid-1")
    assert world.server.made == 1


def test_a_pod_that_the_api_server_refuses_is_an_exit_that_says_so(world: World) -> None:
    world.server.problem = CoordinationError("pods is forbidden: no more than 3")
    world.launcher.start(start())
    [ended] = world.launcher.exits()
    assert (ended.container_id, ended.exit_code, ended.may_live) == (ZERO, 1, False)
    assert "no more than 3" in ended.reason


def test_a_container_says_by_its_last_words_what_it_ended_with(world: World, tmp_path: Path) -> None:
    """They are written into a file that is mounted, so no other can take its place."""
    words = tmp_path / "mounted" / "termination-log"
    words.parent.mkdir()
    words.touch()
    failure = Failure("KeyError", "'page'", "Partition 0", "kafka.in.0", "4")
    epoch = container_epoch(LEADERSHIP, 1)
    environment = {EXIT_FILE: str(words), "GRETE_CONTAINER_EPOCH": str(epoch)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("grete.exit_report.replace_file", refuse)
        write_report(ContainerEnd(ExitCode.POISON, failure), environment)
    world.launcher.start(start())
    world.ends(3, words.read_text())
    [ended] = world.launcher.look()
    assert (ended.exit_code, ended.place, ended.left) == (3, "kafka.in.0 offset 4", False)
    assert "KeyError" in ended.reason


def test_a_container_that_has_said_that_it_ended_in_order_did(world: World) -> None:
    """Whatever its coordinator has heard of it, or has not."""
    world.launcher.start(start())
    report = {"epoch": container_epoch(LEADERSHIP, 1), "code": 0, "failure": None}
    world.ends(0, orjson.dumps(report).decode(), reason="Completed")
    [ended] = world.launcher.look()
    assert (ended.exit_code, ended.reason) == (0, "")


def refuse(*_: object) -> None:
    raise OSError(16, "Device or resource busy")


@pytest.mark.parametrize(
    ("code", "message", "reason", "said"),
    [
        (137, "", "OOMKilled", "killed by signal 9 (SIGKILL); OOMKilled"),
        (1, "the last line of its log", "Error", "the last line of its log"),
        (0, "", "Completed", "and not by the container"),
        (3, '{"epoch": 1, "code": 3, "failure": null}', "Error", '"epoch": 1'),
    ],
)
def test_a_container_without_last_words_ends_with_what_its_node_knows(
    world: World, code: int, message: str, reason: str, said: str
) -> None:
    """An end that looks like one in order is none; words of another incarnation are not this one's."""
    world.launcher.start(start())
    world.ends(code, message, reason)
    [ended] = world.launcher.look()
    assert ended.exit_code != 0
    assert said in ended.reason
    assert world.launcher.look() == []


def test_a_pod_that_its_node_has_ended_may_live(world: World) -> None:
    world.launcher.start(start())
    world.pod()["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    [ended] = world.launcher.look()
    assert (ended.may_live, ended.left, ended.reason) == (True, False, "Evicted: low on memory")


def test_a_pod_that_was_removed_may_live_and_one_of_its_name_is_another(world: World) -> None:
    world.launcher.start(start())
    world.pod()["metadata"]["uid"] = "another"
    [ended] = world.launcher.look()
    assert ended.may_live
    assert "said nothing" in ended.reason


def test_who_is_sent_away_has_not_failed(world: World) -> None:
    """As the pods of a node that is drained: it ends in order, or is not heard of any more."""
    for number, is_heard in ((1, True), (2, False)):
        world.launcher.start(start(number))
        pod = world.pod(number)
        pod["metadata"] |= {"deletionTimestamp": "2026-01-02T03:05:05Z", "deletionGracePeriodSeconds": 60}
        pod["status"] = {"phase": "Running"}
        assert world.launcher.look() == []
        world.clock.advance(65.0)
        assert world.launcher.look() == []
        if is_heard:
            report = orjson.dumps(
                {"epoch": container_epoch(LEADERSHIP, 1), "code": 6, "failure": None}
            ).decode()
            world.ends(6, report)
        world.clock.advance(10.0)
        [ended] = world.launcher.look()
        assert (ended.left, ended.may_live, ended.exit_code) == (True, not is_heard, 6 if is_heard else -9)
    assert (world.pods.name(start(2)), 0) in world.server.removed


def test_a_kill_has_a_second_and_one_that_does_not_end_is_given_up(world: World) -> None:
    world.launcher.start(start())
    world.launcher.kill(ZERO)
    name = world.pods.name(start())
    assert world.server.removed == [(name, 1)]
    world.pod()["metadata"] |= {"deletionTimestamp": "2026-01-02T03:05:05Z", "deletionGracePeriodSeconds": 1}
    world.clock.advance(10.0)
    assert world.launcher.look() == []
    world.clock.advance(2.0)
    [ended] = world.launcher.look()
    assert (ended.may_live, ended.left) == (True, False)
    assert "nothing is heard of no host" in ended.reason
    assert world.server.removed[1:] == [(name, 0)]


def test_a_kill_before_there_is_a_pod_makes_none(world: World) -> None:
    world.server.problem = CoordinationUnreachable("no answer")
    world.launcher.start(start())
    world.launcher.kill(ZERO)
    world.server.problem = None
    [ended] = world.launcher.look()
    assert (ended.exit_code, world.server.pods) == (-9, {})


@pytest.mark.parametrize("misfit", ["uid", "epoch", "name", "kind", "gone"])
def test_a_handle_that_anybody_may_have_written_has_to_be_the_pods_own(world: World, misfit: str) -> None:
    world.launcher.start(start())
    kind, name, uid = world.launcher.handle(ZERO).split("/")
    successor = TurnedLauncher(world.pods, world.clock, LEADERSHIP + 1)
    assert successor.adopt(start(), "/".join((kind, name, uid)))
    adopted = start()
    match misfit:
        case "uid":
            uid = "uid-9"
        case "epoch":
            world.pod()["metadata"]["annotations"]["grete/epoch"] = "7"
        case "name":
            adopted = start(2)
        case "kind":
            kind = "process"
        case "gone":
            world.server.pods.clear()
    assert not TurnedLauncher(world.pods, world.clock, LEADERSHIP + 1).adopt(
        adopted, "/".join((kind, name, uid))
    )


def test_pods_of_an_earlier_leader_that_nobody_adopted_end_and_of_those_that_ended_the_last_stays(
    world: World,
) -> None:
    """The logs of the last one are what people look for."""
    one = ContainerId("1")
    for earlier in (
        start(1, leadership=2),
        start(2, leadership=2),
        start(3, leadership=2),
        start(1, one, leadership=2),
    ):
        world.server.create("", world.pods.manifest(earlier), 1.0)
    for number in (1, 2):
        world.server.pods[world.pods.name(start(number, leadership=2))]["status"] = {"phase": "Failed"}
    world.server.pods[world.pods.name(start(1, one, leadership=2))]["status"] = {"phase": "Succeeded"}
    assert world.launcher.look() == []
    names = [world.pods.name(start(number, leadership=2)) for number in (1, 2, 3)]
    assert world.server.removed == [(name, 1) for name in names]


def test_a_pod_whose_removal_failed_is_removed_when_it_is_seen_again(world: World) -> None:
    """Else one that no host takes would wait for ever, beside its successor."""
    world.launcher.start(start(1))
    world.launcher.start(start(2))
    world.server.removed.clear()
    world.launcher._replaced.clear()
    assert world.launcher.look() == []
    assert world.server.removed == [(world.pods.name(start(1)), 1)]


def test_why_a_pod_waits_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.launcher.start(start())
    assert world.launcher.awaited() == {ZERO: ""}
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    no_room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    world.pod()["status"] = {"phase": "Pending", "conditions": [no_room]}
    world.launcher.look()
    world.launcher.look()
    world.pod()["status"] = {"containerStatuses": [{"name": "grete", "state": {"waiting": waiting}}]}
    world.launcher.look()
    said = [one.getMessage().partition("waits: ")[2] for one in caplog.records if "waits" in one.getMessage()]
    assert said == ["Unschedulable 0/3 nodes", "ImagePullBackOff no such image"]
    assert world.launcher.awaited() == {ZERO: "ImagePullBackOff no such image"}
    successor = TurnedLauncher(world.pods, world.clock, LEADERSHIP + 1)
    assert successor.adopt(start(), world.launcher.handle(ZERO))
    assert successor.awaited() == {ZERO: "ImagePullBackOff no such image"}
    world.pod()["status"] = {"phase": "Running"}
    for launcher in (world.launcher, successor):
        launcher.look()
        assert launcher.awaited() == {}, "it has begun, and has to be heard of"


def test_a_pod_that_could_not_be_asked_for_or_is_killed_before_it_begins(world: World) -> None:
    world.server.problem = CoordinationUnreachable("no answer")
    world.launcher.start(start())
    assert world.launcher.awaited() == {ZERO: ""}
    world.launcher.kill(ZERO)
    assert world.launcher.awaited() == {}, "and its end is waited for as long as that of any other"


def test_a_pod_is_on_the_host_that_was_asked_for_or_near_its_stores(world: World) -> None:
    """What the template wants of nodes stays; that containers are apart counts less."""
    template = world.pods.template["spec"]
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required, preferred = (
        f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred")
    )
    nodes = {required: {"nodeSelectorTerms": [zone]}, preferred: [{"weight": 1, "preference": zone}]}
    template["affinity"] = {"nodeAffinity": nodes, "podAntiAffinity": {preferred: []}}
    is_it = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-3"]}]}
    asked = world.pods.manifest(replace(start(), host="node-3", is_host_required=True))["spec"]["affinity"]
    assert asked == {"nodeAffinity": {**nodes, required: {"nodeSelectorTerms": [{**zone, **is_it}]}}}
    last = world.pods.manifest(replace(start(), host="node-3"))["spec"]["affinity"]
    assert last["nodeAffinity"][required] == nodes[required]
    assert last["nodeAffinity"][preferred][1:] == [{"weight": 100, "preference": is_it}]
    assert world.pods.manifest(start())["spec"]["affinity"] == template["affinity"]


def test_a_host_that_takes_no_pod_within_half_a_minute_is_given_up(world: World) -> None:
    world.launcher.start(replace(start(), host="nowhere", is_host_required=True))
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no such node",
    }
    world.pod()["status"] = {"phase": "Pending", "conditions": [condition]}
    for _ in range(2):
        assert world.launcher.look() == []
        world.clock.advance(16.0)
    [ended] = world.launcher.look()
    assert (ended.left, ended.may_live) == (True, False)
    assert "host nowhere does not take it" in ended.reason
    assert world.server.removed == [(world.pods.name(start()), 0)]
