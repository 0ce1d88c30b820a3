"""Deployments whose managers, machines and configurations are broken: each is one error that says what and where."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.raw_http import CERTIFICATE, RawServer, Request, document, raw_server, reply

from grete.cli.main import main
from grete.deploy import kubernetes as kubernetes_module
from grete.deploy import resource_manager as yarn_module
from grete.deploy.attempt import main as attempt
from grete.deploy.deployment import deployed_name
from grete.deploy.places import CONFIG_FILE
from grete.model.ids import JobId

NAME = deployed_name(JobId("counting"))
PAGE = b"<html><body>Sign in to the proxy</body></html>"
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "installHint": "Log in first."}
Run = Callable[..., tuple[int, str]]


def application(number: int, tag: str = NAME, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"application_1700000000000_{number:04}",
        "state": "RUNNING",
        "applicationTags": tag,
        **fields,
    }


def pod(name: str, job: str = NAME, kind: str = "Pod", **fields: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"grete/job": job},
    }
    return {"kind": kind, "metadata": metadata, **fields}


def drip(_: Request) -> Iterator[bytes]:
    """An answer of which a byte comes now and then."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    for _ in range(1000):
        yield b" "
        time.sleep(0.05)  # slower than any patience, and never silent for long


def stall(_: Request) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"
    time.sleep(2)


GARBAGE: dict[str, Callable[[Request], Iterable[bytes]]] = {
    "nothing": lambda _: [],
    "no HTTP": lambda _: [b"\x15\x03\x01\x00\x02\x02\x46"],
    "cut off in a header": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "cut off in the document": lambda _: reply(200, b'{"apps": {"app": [', length=4000),
    "half a document": lambda _: reply(200, b'{"apps": {"app": ['),
    "no bytes": lambda _: reply(200, b""),
    "bytes that are no text": lambda _: reply(200, b"\xff\xfe\x00{"),
    "a page of a proxy": lambda _: reply(200, PAGE, "Content-Type: text/html"),
    "a page of a proxy that finds nothing": lambda _: reply(404, PAGE, "Content-Type: text/html"),
    "a page of a proxy that is busy": lambda _: reply(409, PAGE, "Content-Type: text/html"),
    "a list": lambda _: document([1, 2]),
    "a number": lambda _: document(7),
    "null": lambda _: document(None),
    "another program's document": lambda _: document({"status": "UP"}),
    "deep nesting": lambda _: reply(200, b"[" * 100_000),
    "wrong types": lambda _: document(
        {
            "apps": {"app": [{**application(1), "state": 7}]},
            "metadata": {"resourceVersion": 7, "name": []},
            "items": [{"metadata": 5}],
        }
    ),
    "an address for an id": lambda _: document(
        {"apps": {"app": [{**application(1), "id": "../../x"}]}, "metadata": {"name": "x"}, "items": 7}
    ),
    "a redirect in a circle": lambda request: reply(307, b"", f"Location: {request.path}"),
    "a redirect to a page": lambda request: (
        reply(200, PAGE) if request.path == "/login" else reply(302, b"", "Location: /login")
    ),
    "a redirect to nowhere": lambda _: reply(302, b"", "Location: http://[::1"),
    "500": lambda _: reply(500, b"java.lang.NullPointerException"),
    "503": lambda _: reply(503, PAGE),
    "lies about its encoding": lambda _: reply(200, b"no gzip", "Content-Encoding: gzip"),
    "a byte now and then": drip,
    "half, and silence": stall,
}


@pytest.fixture
def yarn() -> Iterator[RawServer]:
    with raw_server() as server:
        yield server


@pytest.fixture
def kubernetes() -> Iterator[RawServer]:
    with raw_server(tls=True) as server:
        yield server


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """`grete deploy`, with the job's configuration and what a test adds: its exit code and what it says."""
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(yarn_module, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(kubernetes_module, "_CALL_S", 0.3)
    (tmp_path / "hadoop").mkdir()

    def called(action: str, settings: Mapping[str, str], *words: str) -> tuple[int, str]:
        config = {
            "job.name": "counting",
            "task.class": "counting:Counting",
            "task.inputs": "kafka.in",
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": "kafka:9092",
            **settings,
        }
        path = tmp_path / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        code = main(["deploy", action, "--config", str(path), *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return called


def on_yarn(server: RawServer, folder: Path) -> dict[str, str]:
    return {
        "spark.master": "yarn",
        "job.deploy.yarn.address": server.url,
        "job.deploy.yarn.conf.dir": str(folder / "hadoop"),
    }


def on_kubernetes(server: RawServer, folder: Path, user: Mapping[str, Any] | None = None) -> dict[str, str]:
    config = folder / "kubeconfig"
    cluster = {"server": server.url, "certificate-authority": str(CERTIFICATE)}
    config.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": dict(user or {"token": "secret"})}],
            }
        )
    )
    return {
        "spark.master": f"k8s://{server.url}",
        "spark.kubernetes.container.image": "registry.example/flights:1",
        "job.coordinator.kubernetes.kubeconfig": str(config),
    }


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("action", ["status", "kill", "apply"])
def test_whatever_answers_for_the_resource_manager_is_named_and_nothing_is_done(
    yarn: RawServer, run: Run, tmp_path: Path, what: str, action: str
) -> None:
    yarn.answer = GARBAGE[what]
    began = time.monotonic()
    code, said = run(action, on_yarn(yarn, tmp_path))
    assert code == 1, said
    assert "YARN's ResourceManager gives no answer" in said
    assert yarn.url in said
    assert "Traceback" not in said
    assert {one.method for one in yarn.asked} == {"GET"}
    assert not (tmp_path / "home" / "deployments").exists()
    assert time.monotonic() - began < 10


def test_a_deployment_shows_what_a_program_gives_and_its_failure_is_named(
    kubernetes: RawServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_module, "_CALL_S", 30.0)
    given = {"kind": "ExecCredential", "apiVersion": EXEC["apiVersion"], "status": {"token": "t0ken"}}
    (tmp_path / "given").write_text(json.dumps(given))
    user = {"exec": {**EXEC, "command": "cat", "args": [str(tmp_path / "given")]}}
    nothing = {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}
    missing = {"kind": "Status", "message": "not found"}
    kubernetes.answer = lambda one: (
        document(missing, 404) if "statefulsets" in one.path else document(nothing)
    )
    code, said = run("status", on_kubernetes(kubernetes, tmp_path, user))
    assert (code, said) == (0, "job counting is not deployed\n")
    assert {one.authorization for one in kubernetes.asked} == {"Bearer t0ken"}
    (tmp_path / "given").unlink()
    code, said = run("status", on_kubernetes(kubernetes, tmp_path, user))
    assert code == 1
    assert "cat, ended with 1: " in said
    assert said.endswith("Log in first.\n")


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("action", ["status", "kill", "apply"])
def test_whatever_answers_for_the_api_server_is_named_and_nothing_is_done(
    kubernetes: RawServer, run: Run, tmp_path: Path, what: str, action: str
) -> None:
    kubernetes.answer = GARBAGE[what]
    began = time.monotonic()
    code, said = run(action, on_kubernetes(kubernetes, tmp_path))
    assert code == 1, said
    assert kubernetes.url in said or "no object of Kubernetes" in said
    assert "Traceback" not in said
    assert {one.method for one in kubernetes.asked} == {"GET"}
    assert time.monotonic() - began < 10


def test_applications_of_others_are_left_alone_though_the_question_for_ours_got_lost(
    yarn: RawServer, run: Run, tmp_path: Path
) -> None:
    """As behind a proxy that passes on addresses without their parameters."""
    everybody = [application(1, "grete-other-1"), application(2, ""), application(3, f"{NAME}-2")]
    yarn.answer = lambda _: document({"apps": {"app": everybody}})
    code, said = run("kill", on_yarn(yarn, tmp_path))
    assert (code, "nothing of it runs" in said) == (0, True), said
    assert {one.method for one in yarn.asked} == {"GET"}


def test_pods_of_others_are_left_alone_though_the_question_for_ours_got_lost(
    kubernetes: RawServer, run: Run, tmp_path: Path
) -> None:
    there = [pod("others-0", "grete-other-1"), pod(f"{NAME}-0")]

    def answer(request: Request) -> list[bytes]:
        if request.method == "DELETE":
            there[:] = [one for one in there if not request.path.endswith(one["metadata"]["name"])]
            return document({"kind": "Status"})
        if "labelSelector" in request.path:
            return document({"metadata": {"resourceVersion": "9"}, "items": there})
        return document(pod(request.path.rpartition("/")[2], kind="StatefulSet"))

    kubernetes.answer = answer
    code, said = run("kill", on_kubernetes(kubernetes, tmp_path))
    assert code == 0, said
    assert [one["metadata"]["name"] for one in there] == ["others-0"]


def test_a_deployment_whose_place_another_has_taken_meanwhile_is_not_ended_with_it(
    kubernetes: RawServer, run: Run, tmp_path: Path
) -> None:
    def answer(request: Request) -> list[bytes]:
        if request.method == "DELETE":  # of a uid that is there no more
            return document({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409}, 409)
        return document(pod(request.path.rpartition("/")[2], kind="StatefulSet"))

    kubernetes.answer = answer
    code, said = run("kill", on_kubernetes(kubernetes, tmp_path))
    assert (code, "is deployed as StatefulSet" in said) == (1, True), said
    assert [one.method for one in kubernetes.asked] == ["GET", "DELETE", "GET"]


def test_a_kill_that_a_redirect_makes_a_question_of_is_no_kill(
    yarn: RawServer, run: Run, tmp_path: Path
) -> None:
    def answer(request: Request) -> list[bytes]:
        if request.method == "PUT":
            return reply(302, b"", f"Location: {request.path}")
        return document({"apps": {"app": [application(1)]}, "state": "RUNNING"})

    yarn.answer = answer
    code, said = run("kill", on_yarn(yarn, tmp_path))
    assert code == 1
    assert "gives no answer" in said


def test_what_changes_all_the_time_is_given_up(
    kubernetes: RawServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_module, "_CALL_S", 60.0)  # all of its many requests are answered

    def answer(request: Request) -> list[bytes]:
        if request.method == "GET" and "statefulsets" not in request.path:
            return document(pod("x"))
        return document({"kind": "Status"}, 409 if request.method != "GET" else 404)

    kubernetes.answer = answer
    code, said = run("apply", on_kubernetes(kubernetes, tmp_path))
    assert (code, "changes all the time" in said) == (1, True), said


def test_an_answer_without_end_is_given_up(
    yarn: RawServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yarn_module, "_TIMEOUT_S", 60.0)

    def endless(_: Request) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        for _ in range(100):
            yield b" " * (1 << 20)

    yarn.answer = endless
    code, said = run("status", on_yarn(yarn, tmp_path))
    assert (code, "has more than" in said) == (1, True), said[:500]


def test_a_deployment_from_a_full_disk_sends_nothing_and_says_which_folder(
    yarn: RawServer, run: Run, tmp_path: Path
) -> None:
    yarn.answer = lambda _: document({"apps": None})
    folder = tmp_path / "home" / "deployments" / "counting-1"
    folder.mkdir(parents=True)
    (folder / CONFIG_FILE).symlink_to("/dev/full")
    code, said = run("apply", on_yarn(yarn, tmp_path))
    assert code == 1
    assert str(folder) in said
    assert "nothing was sent" in said
    assert "No space left" in said
    # a container of another test may take the server for a coordinator that had the port before
    asked = [one for one in yarn.asked if not one.path.startswith("/api/v1/containers")]
    assert {one.method for one in asked} == {"GET"}


def test_an_attempt_that_cannot_write_ends_with_an_error_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another attempt, maybe on another node, follows."""
    (tmp_path / "home").write_text("a file where the home should be")
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    config = tmp_path / "job.properties"
    config.write_text(
        "job.name=counting\ntask.class=counting:Counting\ntask.inputs=local.in\n"
        "systems.local.samza.factory=local\njob.launcher=thread\n"
    )
    assert attempt(["--manager", "kubernetes", "--config", str(config)]) == 1
    said = capfd.readouterr().err
    assert str(tmp_path / "home") in said
    assert "Traceback" not in said


@pytest.mark.parametrize("action", ["plan", "apply", "status", "kill"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spark.master": "yarn", "job.deploy.yarn.conf.dir": "/nowhere/at/all"}, "is no folder"),
        ({"spark.master": "yarn", "job.deploy.yarn.conf.dir": "{folder}/broken"}, "yarn-site.xml"),
        (
            {
                "spark.master": "k8s://x",
                "job.coordinator.kubernetes.kubeconfig": "{folder}/broken/kubeconfig",
            },
            "kubeconfig",
        ),
        ({"spark.master": "yarn", "job.name": "\x00\x1b[2J"}, "job.name"),
        ({"spark.master": "yarn", "job.container.count": "many"}, "job.container.count"),
    ],
)
def test_garbage_in_the_configuration_is_refused_by_its_key_or_file(
    run: Run, tmp_path: Path, action: str, settings: dict[str, str], words: str
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "yarn-site.xml").write_bytes(b"<configuration><property>\xff")
    (broken / "kubeconfig").write_bytes(b"\x00{[")
    code, said = run(action, {key: value.format(folder=tmp_path) for key, value in settings.items()})
    if action == "plan" and "broken" in str(settings) and "yarn" in str(settings):
        assert code == 0  # who the ResourceManager is does not matter to a plan
        return
    assert code in (1, 2)
    assert words in said
    assert "\x1b" not in said
    assert "Traceback" not in said
