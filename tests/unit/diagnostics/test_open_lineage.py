"""OpenLineage: a job is one run, whatever becomes of its processes, and says how far its commits are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.visits_job import append, running_visits

from grete.assembly import lineage_run
from grete.assembly.lineage_run import LineageRun, dataset_of, table_of
from grete.cli.main import main
from grete.config.settings import Settings
from grete.diagnostics.open_lineage import LineageEvent, client_transport
from grete.errors import StreamError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.testing.waiting import eventually

TYPE = "spark.openlineage.transport.type"


def to_file(home: Path, **more: str) -> dict[str, str]:
    location = {"spark.openlineage.transport.location": str(home / "events.jsonl")}
    return {TYPE: "file", **location, "spark.openlineage.namespace": "tests", **more}


def events(home: Path) -> list[dict[str, Any]]:
    file = home / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def kinds(home: Path) -> list[str]:
    return [event["eventType"] for event in events(home)]


def test_a_run_begins_and_completes_with_all_that_is_read_and_written_and_how_far(home: Path) -> None:
    with running_visits(home, "a visit", **to_file(home, **{"task.outputs": "local.copies"})) as running:
        append(home, "another")
        eventually(lambda: "START" in kinds(home), "the run has begun")
        assert main(["stop", "--job", "visits"]) == 0
        running.wait(60)
    first, *_, last = events(home)
    assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
    assert first["run"]["runId"] == last["run"]["runId"]
    assert (first["job"]["namespace"], first["job"]["name"]) == ("tests", "visits")
    assert first["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    [read] = last["inputs"]
    assert read["name"] == "in"
    assert read["namespace"].startswith(f"file:{home}")
    assert read["facets"]["grete_offsets"]["nextOffsets"] == {"0": "2"}
    assert [one["name"] for one in last["outputs"]] == ["copies"]


def test_a_coordinator_that_goes_on_for_another_goes_on_with_its_run_and_says_why_it_fails(
    home: Path,
) -> None:
    more = {"task.poison.policy": "fail", "cluster-manager.container.retry.count": "0"}
    with running_visits(home, "a visit", **to_file(home, **more)) as running:
        eventually(lambda: "START" in kinds(home), "the run has begun")
        running.kill()
        running.wait()
    again = [sys.executable, "-m", "grete.testing.sparkless", "--job", "visits"]
    with (home / "again.log").open("wb") as log, subprocess.Popen(again, stderr=log) as resumed:
        text = (home / "again.log").read_text
        eventually(lambda: kinds(home)[-1] == "RUNNING", "it goes on", context=text)
        append(home, "odd")
        assert resumed.wait(60) != 0
    assert kinds(home)[0] == "START"
    assert kinds(home)[-1] == "FAIL"
    assert len({event["run"]["runId"] for event in events(home)}) == 1
    assert "an odd visit" in events(home)[-1]["run"]["facets"]["errorMessage"]["message"]


def test_a_receiver_that_hangs_delays_neither_the_job_nor_its_end(home: Path) -> None:
    with OtlpReceiver() as receiver:
        receiver.answers.clear()
        to = {TYPE: "http", "spark.openlineage.transport.url": receiver.endpoint}
        with running_visits(home, "a visit", **to) as running:
            eventually(lambda: receiver.requests > 0, "it was asked")
            append(home, "another")
            assert main(["stop", "--job", "visits"]) == 0
            assert running.wait(30) == 0
    assert "OpenLineage may lack the last event" in (home / "run.log").read_text()


def test_without_the_client_the_job_runs_and_the_log_names_the_extra(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "openlineage.py").write_text("")  # a module, and no package with a client
    monkeypatch.setenv("PYTHONPATH", str(home))
    with running_visits(home, "a visit", **to_file(home)):
        pass
    assert "pip install 'grete[lineage]'" in (home / "run.log").read_text()


def test_what_goes_wrong_with_an_event_costs_the_event_and_not_the_end_of_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        closed = False

        @property
        def containers(self) -> NoReturn:
            raise KeyError("kafka.bootstrap.servers")

        def send(self, event: object) -> None:
            raise AssertionError("there is none")

        def close(self) -> None:
            self.closed = True

    broken: Any = Broken()
    LineageRun(broken, broken, tmp_path, is_new=True).close("COMPLETE")
    assert broken.closed
    assert "OpenLineage has no COMPLETE of this job's run: 'kafka.bootstrap.servers'" in caplog.text


def test_a_beginning_that_could_not_be_said_is_said_later_with_the_offset_that_each_task_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tasks read the partition, which is a broadcast one: a container starts where the slower of them is."""
    settings = Settings.of({"task.inputs": "local.in"})
    ssp = SystemStreamPartition("local", "in", 0)
    container = SimpleNamespace(tasks={name: SimpleNamespace(ssps={ssp}) for name in ("a", "b")})
    answers: list[Any] = [StreamError("no answer"), {"a": {str(ssp): "6"}, "b": {str(ssp): "4"}}]

    def checkpoints() -> Any:
        if isinstance(answer := answers.pop(0) if len(answers) > 1 else answers[0], Exception):
            raise answer
        return answer

    containers = SimpleNamespace(
        is_ready=lambda: True,
        serving=lambda: (settings, SimpleNamespace(containers={"0": container})),
        progress=dict,
    )
    view: Any = SimpleNamespace(containers=containers, checkpoints=checkpoints)
    sent: list[LineageEvent] = []
    reporter: Any = SimpleNamespace(send=sent.append, close=lambda: None)
    for name in ("_SOON_S", "_EVERY_S"):
        monkeypatch.setattr(lineage_run, name, 0.001)
    run = LineageRun(reporter, view, tmp_path, is_new=True)
    run.start()
    eventually(lambda: len(sent) > 1, "it was said")
    run.close("COMPLETE")
    assert [sent[0].kind, sent[1].kind, sent[-1].kind] == ["START", "RUNNING", "COMPLETE"]
    assert list(sent[0].inputs.values()) == [{"0": "5"}]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (
            {"type": "http", "url": "http://l:5000", "timeoutInMillis": "2500", "auth.type": "api_key"},
            {"type": "http", "url": "http://l:5000", "timeout": 2.5, "auth": {"type": "api_key"}},
        ),
        ({"type": "file", "location": "/tmp/e"}, {"type": "file", "log_file_path": "/tmp/e", "append": True}),  # noqa: S108
        (
            {"type": "kafka", "topicName": "t", "properties.bootstrap.servers": "b:1"},
            {"type": "kafka", "topic": "t", "config": {"bootstrap.servers": "b:1"}},
        ),
    ],
)
def test_what_the_listener_is_configured_with_is_the_clients_too(
    given: dict[str, str], made: dict[str, Any]
) -> None:
    assert client_transport(given) == made


def test_a_key_is_resolved_where_the_client_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_KEY", "sesame")
    found = client_transport({"auth.apiKey": "${env:LINEAGE_KEY}"})
    assert found == {"auth": {"apiKey": "sesame"}}


@pytest.mark.parametrize(
    ("format", "place", "named"),
    [
        ("delta", "/lake/orders", ("file", "/lake/orders")),
        ("delta", "file:/lake/orders/", ("file", "/lake/orders")),
        ("parquet", "s3a://lake/a/b/", ("s3://lake", "a/b")),
        ("parquet", "gs://lake", ("gs://lake", "/")),
        ("parquet", "abfss://c@a.dfs.core.windows.net/x", ("abfss://c@a.dfs.core.windows.net", "x")),
        ("delta", "hdfs://name:8020/lake/orders", ("hdfs://name:8020", "/lake/orders")),
        ("jdbc", "jdbc:postgresql://db:5432/shop?user=x", ("postgres://db:5432", "shop.public.orders")),
        ("jdbc", "jdbc:mysql://u:p@db:3306/shop", ("mysql://db:3306", "shop.public.orders")),
    ],
)
def test_tables_are_named_as_open_lineage_names_them(format: str, place: str, named: tuple[str, str]) -> None:
    where = {"outputs.o.url": place, "outputs.o.table": "public.orders"} if format == "jdbc" else {}
    settings = Settings.of({"outputs.o.format": format, "outputs.o.path": place, **where})
    assert table_of(settings.outputs["o"]) == named


def test_topics_are_named_by_their_first_broker(tmp_path: Path) -> None:
    system = {"systems.k.samza.factory": "kafka", "systems.k.producer.bootstrap.servers": "a:1, b:2"}
    found = dataset_of(SystemStream("k", "orders"), Settings.of(system), tmp_path)
    assert found == ("kafka://a:1", "orders")
