"""A job moves: the real Samza 1.8.0 wrote its streams, grete goes on from them, and Samza reads what grete left.

The properties file is Samza's, unchanged but for `task.class`. Samza had processed two partitions up to offsets 100
and 101. Its changelog partitions are swapped (task 0 owns partition 1), so that a mapping that is not taken over
shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.topic_records import topic_records

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient
from grete_workbench.real_samza import run_samza, samza_config

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS, LATER, USERS = 200, 50, 7
"""Records in each partition before and after grete's first run, and how many keys take turns in them."""
PROCESSED = (100, 101)
"""The last offset of each partition that Samza processed: what `write-checkpoints` writes."""
CHANGELOG_OF = (1, 0)
"""The changelog partition of each task: what `submit` writes."""
VIEWS = """
import grete

class Views(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        at = [envelope.system_stream_partition.partition, int(envelope.offset)]
        collector.send("kafka.view-counts", {"count": count, "at": at}, key=envelope.key)
"""


@pytest.fixture
def broker(cluster: KafkaCluster) -> KafkaCluster:
    """Not that of `test_real_samza.py`: the programs of interop/ name their topics."""
    return cluster


def samza_properties(broker: KafkaCluster) -> dict[str, str]:
    return {
        **samza_config(broker.bootstrap, "views"),
        "job.factory.class": "org.apache.samza.job.yarn.YarnJobFactory",
        "task.class": "com.example.Views",
        "yarn.package.path": "hdfs://namenode/views.tar.gz",
        "systems.kafka.default.stream.samza.key.serde": "string",
        "systems.kafka.default.stream.samza.msg.serde": "json",
        "systems.kafka.default.stream.samza.offset.default": "oldest",
        "serializers.registry.string.class": "org.apache.samza.serializers.StringSerdeFactory",
        "serializers.registry.json.class": "org.apache.samza.serializers.JsonSerdeFactory",
        "serializers.registry.integer.class": "org.apache.samza.serializers.IntegerSerdeFactory",
        "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
        "stores.counts.changelog": "kafka.views-counts",
        "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "integer",
        "stores.default.changelog.replication.factor": "1",
    }


def key_of(partition: int, offset: int) -> str:
    """The keys of the two partitions have nothing in common."""
    return f"user-{partition}-{offset % USERS}"


def append(broker: KafkaCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(2):
        for offset in range(first, first + count):
            producer.produce("page-views", b'{"page": "/"}', key_of(partition, offset), partition)
    assert producer.flush(30) == 0


def samza_ran(broker: KafkaCluster, config: dict[str, str], directory: Path) -> None:
    """The streams as a Samza job leaves them: submitted, its changelog written, its checkpoints last."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic("page-views", 2, 1), NewTopic("view-counts", 2, 1)]
    for made in admin.create_topics([*topics, NewTopic("views-counts", 2, 1, config=compacted)]).values():
        try:
            made.result(30)
        except KafkaException as error:  # the client asks again when a busy broker was slow to answer
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    append(broker, 0, RECORDS)
    run_samza("submit", config, directory)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for task, last in enumerate(PROCESSED):
        for key, count in processed(task, last).items():
            producer.produce("views-counts", count.to_bytes(4, "big"), key, CHANGELOG_OF[task])
    assert producer.flush(30) == 0
    run_samza("write-checkpoints", config, directory)


def processed(partition: int, last: int) -> Counter[str]:
    """How often each key occurs up to an offset."""
    return Counter(key_of(partition, offset) for offset in range(last + 1))


def run_grete(properties: Path, home: Path) -> None:
    settings = [
        "task.class=views:Views",
        f"job.application.path={properties.parent}",
        "spark.master=local[2]",
    ]
    command = [sys.executable, "-m", "grete.cli.main", "run", "--until-drained", "--quiet"]
    done = subprocess.run(
        [*command, "--config", str(properties), *(word for each in settings for word in ("--set", each))],
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=patient(300),
    )
    assert done.returncode == 0, done.stderr


def outputs(broker: KafkaCluster) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """(partition, offset) of an input record -> (key, count) of each output it made."""
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for one in topic_records(broker.bootstrap, "view-counts", 2):
        value = json.loads(one.value or b"")
        found.setdefault(tuple(value["at"]), []).append(((one.key or b"").decode(), value["count"]))
    return found


def expected(records: int) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Each record that Samza had not processed made one output, whose count goes on from Samza's."""
    found = {}
    for partition, last in enumerate(PROCESSED):
        counts = processed(partition, last)
        for offset in range(last + 1, records):
            counts[key_of(partition, offset)] += 1
            found[(partition, offset)] = [(key_of(partition, offset), counts[key_of(partition, offset)])]
    return found


def test_grete_goes_on_where_samza_stopped_and_samza_reads_what_grete_wrote(
    broker: KafkaCluster, tmp_path: Path
) -> None:
    config = samza_properties(broker)
    (tmp_path / "views.py").write_text(VIEWS)
    properties = tmp_path / "views.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    samza_ran(broker, config, tmp_path)

    run_grete(properties, tmp_path / "home")
    assert outputs(broker) == expected(RECORDS)

    append(broker, RECORDS, LATER)
    run_grete(properties, tmp_path / "another home")  # nothing is kept but what is on the brokers
    assert outputs(broker) == expected(RECORDS + LATER)

    both = {"task.checkpoint.read.versions": "2,1"}
    for version, more in (("v1", {}), ("v2", both)):
        assert set(run_samza("read-checkpoints", config | more, tmp_path)) == {
            ("checkpoint", version, f"Partition {n}", f"kafka.page-views.{n}", str(RECORDS + LATER - 1))
            for n in range(2)
        }
    lines = set(run_samza("read-coordinator-stream", config, tmp_path))
    read = {line[1]: line[2] for line in lines if line[0] == "config"}
    changed = {key for key in config if read.get(key) != config[key]}
    assert changed == {"task.class"}
    assert {line for line in lines if line[0] in ("changelog", "tasks", "container", "mode")} == {
        *(("changelog", f"Partition {n}", str(CHANGELOG_OF[n])) for n in range(2)),
        *(("tasks", f"kafka.page-views.{n}", f"Partition {n}") for n in range(2)),
        *(("container", f"Partition {n}", "0") for n in range(2)),
        *(("mode", f"Partition {n}", "Active") for n in range(2)),
    }
