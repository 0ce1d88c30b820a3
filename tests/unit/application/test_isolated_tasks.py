"""Applications with a process of their own have everything that a task has."""

from __future__ import annotations

import pytest
from tests.support.isolated_application import COUNTER, Start, sent
from tests.support.isolated_application import start as start

from grete.config.rules.validate import validate
from grete.errors import ConfigError


def test_timers_windows_metrics_headers_and_secrets_cross_the_boundary(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_WORD", "sesame")
    text = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        context.scheduler.schedule("soon", 1_700_000_030_000)
        self.counter = context.metrics.counter("seen")
        self.word = context.config["my.word"]
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        self.counter.inc()
        self.counts.put(envelope.key, 1)
        self.counts.delete("gone")
        headers = [*envelope.headers, ("word", self.word)]
        collector.send("local.out", self.word, key=envelope.key, headers=headers, timestamp_ms=7)

    def window(self, collector, coordinator):
        collector.send("local.out", ["window", sorted(key for key, _ in self.counts.all())])

    def on_timer(self, key, collector, coordinator):
        collector.send("local.out", ["timer", key])
"""
    job = start(text, **{"my.word": "${env:GRETE_WORD}", "task.window.ms": "60000"})
    job.send("local.in", 1, key="k", headers=[("from", b"here")])
    job.run()
    [first] = job.outputs("local.out")
    assert (first.message, first.timestamp_ms) == ("sesame", 7)
    assert list(first.headers) == [("from", b"here"), ("word", b"sesame")]
    job.clock.advance(60.0)
    job.run()
    assert job.messages("local.out")[1:] == [["timer", "soon"], ["window", ["k"]]]


def test_a_store_is_read_beyond_what_is_fetched_at_once(start: Start) -> None:
    text = (
        COUNTER
        + """
    def window(self, collector, coordinator):
        collector.send("local.out", [len(list(self.counts.all())), self.counts.get("k4999")])
"""
    )
    job = start(text, **{"task.window.ms": "1000"})
    keys = [f"k{number:04}" for number in range(5_000)]
    assert sent(job, *keys) == [1] * 5_000
    job.restart(lose_stores=True)
    job.clock.advance(1.0)
    job.run()
    assert job.messages("local.out")[-1] == [5_000, 1]


def test_messages_of_a_task_in_progress_at_the_same_time_are_refused() -> None:
    config = {"job.name": "a", "job.split.deployment.enabled": "true", "task.inputs": "local.in"}
    with pytest.raises(ConfigError, match="one message of a task in progress"):
        validate(config | {"task.class": "my:Task", "task.max.concurrency": "2"})


def test_a_serde_that_needs_the_frameworks_packages_is_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match="the serde 'avro', which an application with"):
        sent(start(**{"stores.counts.msg.serde": "avro"}), "k")


def test_a_serde_of_the_applications_own_runs_in_its_process(start: Start) -> None:
    serde = """
import os

class Own(grete.Serde):
    def to_bytes(self, value):
        return f"{os.getpid() == PID} {value}".encode()

    def from_bytes(self, data):
        return data.decode()

PID = os.getpid()
"""
    own = {"serializers.registry.own.class": "counting:Own", "stores.counts.key.serde": "own"}
    text = (
        COUNTER
        + """
    def window(self, collector, coordinator):
        collector.send("local.out", [key for key, _ in self.counts.all()])
"""
    )
    job = start(text + serde, **own, **{"task.window.ms": "1000"})
    assert sent(job, "a", "a") == [1, 2]
    job.clock.advance(1.0)
    job.run()
    assert job.messages("local.out")[-1] == ["True a"]
