"""What is traced of a job, and how a trace goes on from record to record."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.isolated_application import Start
from tests.support.isolated_application import start as start
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.visits_job import JOB, running_visits

import grete
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.http_client import read_token
from grete.operations import open_job
from grete.systems.base import Message
from grete.systems.factory import open_system
from grete.testing.job import JobUnderTest
from grete.testing.waiting import eventually

TRACE = ("traceparent", f"00-{10:032x}-{3:016x}-01".encode())
STATE = ("tracestate", b"shop=1")
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
ENDPOINT = {"job.traces.endpoint": "http://127.0.0.1:9"}
"""Nobody is there, and nothing waits for anybody."""


def visit(home: Path, *traces: int) -> None:
    with closing(
        open_system(Settings.of({"systems.local.samza.factory": "local"}), "local", home, SystemClock())
    ) as system:
        headers = [[("traceparent", f"00-{trace:032x}-{1:016x}-01".encode())] for trace in traces]
        system.append("in", [Message(None, b"a visit", 0, 0, one) for one in headers])


def test_a_submission_its_container_batches_a_change_and_a_rewind_are_traced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{77:032x}-{8:016x}-01")
    with (
        OtlpReceiver() as receiver,
        running_visits(home, "a visit", **{"job.traces.endpoint": receiver.endpoint}) as running,
    ):
        visit(home, 21, 22)
        eventually(lambda: any(len(one.links) == 2 for one in receiver.named("batch")), "it is committed")
        assert main(["config", "set", "--job", "visits", "task.window.ms", "60000", "--reason", "x"]) == 0
        eventually(lambda: len(receiver.named("change")) == 2, "the model has changed")
        command = ["checkpoint", "rewind", "--job", "visits", "--to", "oldest"]
        assert main([*command, "--live", "--execute", "--reason", "again"]) == 0
        eventually(lambda: receiver.named("rewind"), "it has read from there")
        running.terminate()
        running.wait()
    [submitted] = receiver.named("submit")
    assert (submitted.process, submitted.trace) == ("samza-job-coordinator", f"{77:032x}")
    assert submitted.parent == f"{8:016x}"
    [started] = receiver.named("start")
    assert started.process == "samza-container-0"
    assert (started.trace, started.parent) == (submitted.trace, submitted.id)
    first, second = receiver.named("change")
    assert first.parent == submitted.id
    assert second.attributes["grete.change.cause"] == "configuration change: task.window.ms"
    [rewound] = receiver.named("rewind")
    again = [one for one in receiver.named("batch") if one.attributes["grete.batch.records"] == 3]
    assert [sorted(one.links) for one in again] == [[f"{21:032x}", f"{22:032x}"]]
    assert rewound.began_ms < again[0].ended_ms <= rewound.ended_ms
    assert all(one.began_ms <= one.ended_ms for one in receiver.spans)
    commits = {one.parent for one in receiver.named("commit")}
    assert commits == {one.id for one in receiver.named("batch")}
    assert not [one for one in receiver.spans if one.error]


def test_the_next_coordinator_traces_the_fail_over_and_a_container_its_failure(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtlpReceiver() as receiver:
        traced = {"job.traces.endpoint": receiver.endpoint, "task.poison.policy": "fail"}
        more = {"cluster-manager.container.retry.count": "0"}
        with running_visits(home, "a visit", **traced, **more) as running:
            running.kill()
            running.wait()
        resumed = [sys.executable, "-m", "grete.testing.sparkless", "--job", "visits"]
        with (home / "again.log").open("wb") as log, subprocess.Popen(resumed, stderr=log) as again:
            text = (home / "again.log").read_text
            eventually(lambda: receiver.named("fail-over"), "it leads", context=text)
            (home / "odd").write_text("odd\n")
            assert main(["stream", "append", "local.in", "--from-file", str(home / "odd"), "--lines"]) == 0
            assert again.wait(60) != 0
    [failed] = receiver.named("failure")
    assert "an odd visit" in failed.error
    assert failed.process == "samza-container-0"


def metrics_of(home: Path) -> dict[str, int]:
    """What the container has sent and lost, as scrapers see it."""
    with open_job(JOB) as handle:
        state = handle.state()
        token = read_token(handle.state_directory / "http-metrics-token")
    assert state is not None
    said = httpx2.get(
        f"{state.url}/metrics", headers={"Authorization": f"Bearer {token}"}, trust_env=False
    ).text
    return {
        name: int([*re.findall(rf'name="{name}"}} (\d+)', said), 0][0])
        for name in ("spans-sent", "spans-lost")
    }


def test_so_many_batches_are_traced_as_the_percentage_says(home: Path) -> None:
    with OtlpReceiver() as receiver:
        traced = {"job.traces.endpoint": receiver.endpoint, "job.traces.percent": "0"}
        with running_visits(home, "a visit", **traced):
            eventually(lambda: receiver.named("start"), "what the coordinator does is traced all the same")
            visit(home, 21)
            eventually(
                lambda: metrics_of(home)["spans-lost"] == 0 < metrics_of(home)["spans-sent"], "counted"
            )
        assert not receiver.named("batch")


def send(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
    if envelope.message == "odd":
        raise ValueError(envelope.message)
    named = {"headers": envelope.message} if isinstance(envelope.message, dict) else {}
    collector.send("local.out", 1, **named)


@pytest.mark.parametrize("policy", [{}, {"task.poison.policy": "dead-letter"}])
def test_what_is_sent_for_a_message_goes_on_with_its_trace(policy: dict[str, str]) -> None:
    letters = {"task.poison.dead-letter.stream": "local.odd"} if policy else {}
    with JobUnderTest(send, {**CONFIG, **ENDPOINT, **policy, **letters}) as job:
        job.send("local.in", 1, headers=[TRACE, ("other", b"stays"), STATE])
        job.send("local.in", 2)
        job.send("local.in", {"traceparent": "its own"}, headers=[TRACE])
        job.send("local.in", {"word": "x"}, headers=[TRACE])
        job.run()
        assert [list(one.headers) for one in job.outputs("local.out")] == [
            [TRACE, STATE],
            [],
            [("traceparent", b"its own")],
            [("word", b"x"), TRACE],
        ]


def test_windows_and_records_without_a_trace_have_none() -> None:
    class Windowed(grete.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            collector.send("local.out", envelope.message)

        def window(self, collector: Any, coordinator: Any) -> None:
            collector.send("local.out", "window")

    with JobUnderTest(Windowed, {**CONFIG, **ENDPOINT, "task.window.ms": "1000"}) as job:
        job.send("local.in", 1, headers=[TRACE])
        job.run()
        job.clock.advance(2)
        job.run()
        found = [(one.message, list(one.headers)) for one in job.outputs("local.out")]
        assert found == [(1, [TRACE]), ("window", [])]


def test_asynchronous_tasks_pass_each_messages_own_trace_on() -> None:
    class Late(grete.AsyncStreamTask):
        async def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            await asyncio.sleep(0)
            collector.send("local.out", envelope.message)

    other = ("traceparent", f"00-{11:032x}-{3:016x}-01".encode())
    with JobUnderTest(Late, {**CONFIG, **ENDPOINT, "task.max.concurrency": "3"}) as job:
        for number, headers in enumerate([[TRACE], [other], []]):
            job.send("local.in", number, headers=headers)
        job.run()
        found = {one.message: list(one.headers) for one in job.outputs("local.out")}
        assert found == {0: [TRACE], 1: [other], 2: []}


def test_an_application_in_its_own_process_passes_traces_on(start: Start) -> None:
    text = """
import grete

class Counter(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message)
"""
    job = start(text, **ENDPOINT)
    job.send("local.in", 1, headers=[TRACE])
    job.send("local.in", 2)
    job.run()
    assert [list(one.headers) for one in job.outputs("local.out")] == [[TRACE], []]


def test_without_a_receiver_traces_stay_where_they_are() -> None:
    with JobUnderTest(send, CONFIG) as job:
        job.send("local.in", 1, headers=[TRACE])
        job.run()
        assert [list(one.headers) for one in job.outputs("local.out")] == [[]]


def test_log_lines_name_the_batch_and_its_trace(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRETE_LOG_FORMAT", "json")
    with OtlpReceiver() as receiver:
        traced = {"job.traces.endpoint": receiver.endpoint, "task.poison.policy": "fail"}
        more = {"cluster-manager.container.retry.count": "0"}
        with running_visits(home, "a visit", **traced, **more) as running:
            (home / "odd").write_text("odd\n")
            assert main(["stream", "append", "local.in", "--from-file", str(home / "odd"), "--lines"]) == 0
            running.wait(60)
        [batch] = [one for one in receiver.named("batch") if one.attributes["grete.batch.records"] == 1]
    [log] = home.rglob("container-0.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    [failed] = [one for one in lines if "an odd visit" in one["message"]]
    assert failed["batch"] == str(int(str(batch.attributes["grete.batch.id"])) + 1)
    assert failed["trace"] not in ("", batch.trace)
