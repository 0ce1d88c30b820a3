"""A pipeline over several systems: checkpoints in one of them, offsets of all, one input rewound alone."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.consumer_group import group_offsets
from tests.support.topic_records import topic_records

from grete.clock import SystemClock
from grete.config.rules.validate import check
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

APPLICATION = """
import grete
from pyspark.sql import functions as F

class Joined(grete.DataFramePipeline):
    output = "kafka.{topic}-out"

    def build(self, inputs):
        clicks = inputs["kafka.{topic}"].select(F.col("key").cast("string").alias("n"), "timestamp")
        users = inputs["local.users"].select(F.col("key").cast("string").alias("n"), "timestamp")
        pairs = clicks.join(users.drop("timestamp"), "n")
        pairs = pairs.select(F.col("n").alias("key"), F.lit("pair").alias("value"))
        alone = inputs["local.users"].select("key", F.lit("user").alias("value"))
        more = inputs["other.{topic}-more"].select("key", F.lit("more").alias("value"))
        return pairs.select(F.col("key").cast("binary"), "value").unionByName(alone).unionByName(more)
"""
PROPERTIES = """
job.name=counter
job.application.path=.
app.class=counter:Joined
task.inputs=kafka.{topic},local.users,other.{topic}-more
task.outputs=kafka.{topic}-out
task.checkpoint.system=kafka
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.local.samza.offset.default=oldest
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.default.stream.replication.factor=1
systems.kafka.consumer.bootstrap.servers={bootstrap}
systems.other.samza.factory=kafka
systems.other.samza.offset.default=oldest
systems.other.consumer.bootstrap.servers={bootstrap}
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    name = f"systems-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for one in (name, f"{name}-more"):
        admin.create_topics([NewTopic(one, 2, 1)])[one].result(30)
    return name


def sent(kafka: KafkaCluster, topic: str) -> list[tuple[str, str]]:
    found = topic_records(kafka.bootstrap, f"{topic}-out", 2)
    return sorted(((one.key or b"").decode(), (one.value or b"").decode()) for one in found)


@pytest.mark.nightly  # 70 s; several systems of a StreamTask are met by every run, in test_several_systems.py
def test_two_kafka_systems_and_the_embedded_one_are_read_together_and_one_of_them_is_rewound_alone(
    kafka: KafkaCluster, topic: str, tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    names = {"topic": topic, "bootstrap": kafka.bootstrap}
    job = job_maker(tmp_path, APPLICATION.replace("{topic}", topic), PROPERTIES.format(**names))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(4):
        producer.produce(topic, b"{}", b"%d" % n)
    producer.produce(f"{topic}-more", b"{}", b"7")
    assert producer.flush(30) == 0
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("users", 2))
        local.append("users", (Message(b"%d" % n, b"{}", n) for n in range(2, 6)))
    done = job.run()
    assert done.returncode == 0, done.stderr + job.log()
    users = [(str(n), "user") for n in range(2, 6)]
    kept = [("2", "pair"), ("3", "pair"), ("7", "more")]
    assert sent(kafka, topic) == sorted([*kept, *users])
    shown_by_tools: Counter[str] = Counter()
    for (name, _), offset in group_offsets(kafka.bootstrap, "grete-counter-1").items():
        shown_by_tools[name] += offset
    assert (shown_by_tools[topic], shown_by_tools[f"{topic}-more"]) == (4, 1)

    def grete(*words: str) -> str:
        command = [*job.command(*words)[:-2], "--job", "counter"]
        done = subprocess.run(command, env=job.environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(grete("checkpoint", "show", "-o", "json"))
    streams = (f"kafka.{topic}", "local.users", f"other.{topic}-more")
    assert {f"{stream}.{p}" for stream in streams for p in (0, 1)} <= set(str(shown).split("'"))
    rewound = ["--ssp", "local.users.0", "--ssp", "local.users.1", "--to", "oldest", "--state", "discard"]
    grete("checkpoint", "rewind", *rewound, "--execute")
    again = job.run()
    assert again.returncode == 0, again.stderr + job.log()
    assert sent(kafka, topic) == sorted([*kept, *users, *users])


def test_where_checkpoints_of_several_systems_are_has_to_be_said() -> None:
    config = {
        "job.name": "words",
        "app.class": "words:Words",
        "task.inputs": "kafka.a,local.b",
        "job.coordinator.system": "local",
        "systems.local.samza.factory": "local",
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.consumer.bootstrap.servers": "x:1",
    }
    [problem] = check(config).errors
    assert "say in which of them the checkpoints are by task.checkpoint.system" in problem
    assert check({**config, "task.checkpoint.system": "kafka"}).errors == ()
    tasks = {key: value for key, value in config.items() if key != "app.class"} | {
        "task.class": "words:Words"
    }
    assert check(tasks).errors == (problem,)
    assert check({**tasks, "task.checkpoint.system": "kafka"}).errors == ()
