"""A store that a side input fills: the real Samza 1.8.0 and grete read the same topics, and send the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.samza_job import SamzaJob
from tests.support.topic_records import topic_records

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.real_samza import samza_config

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
PARTITIONS = 2
PROFILES = """
import grete

class Filling(grete.SideInputsProcessor):
    def process(self, envelope, store):
        said = envelope.message
        if envelope.key is None:
            return [(None, said)]
        if said.get("left"):
            return [(envelope.key, None)]
        before = store.get(envelope.key)
        return [(envelope.key, {**said, "version": 1 if before is None else before["version"] + 1})]

class Profiles(grete.StreamTask):
    def init(self, context):
        self.profiles = context.store("profiles")
        self.target = context.config["views.target"]

    def process(self, envelope, collector, coordinator):
        at = [envelope.system_stream_partition.partition, int(envelope.offset)]
        said = {"profile": self.profiles.get(envelope.key), "at": at}
        collector.send(f"kafka.{self.target}", said, key=envelope.key)
"""
LEFT = {"left": True}
Places = Mapping[tuple[int, int], Any]


class ProfiledViews:
    """Two topics, of which one fills a store, and the two jobs that read them."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._mark = uuid.uuid4().hex[:8]
        self._bootstrap, self._directory = bootstrap, directory
        self._starts, self._views = 0, [0] * PARTITIONS
        self.profiles, self.views = f"profiles-{self._mark}", f"views-{self._mark}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = (self.profiles, self.views, self._target("samza"), self._target("grete"))
        for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
            made.result(30)

    def _target(self, of: str) -> str:
        return f"joined-{of}-{self._mark}"

    def _config(self, of: str) -> dict[str, str]:
        return {
            **samza_config(self._bootstrap, f"profiled-{of}-{self._mark}"),
            "job.factory.class": "org.apache.samza.job.local.ThreadJobFactory",
            "task.class": "grete.interop.Profiles",
            "task.inputs": f"kafka.{self.views},kafka.{self.profiles}",  # both, as Samza wants it
            "task.commit.ms": "86400000",
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.default.stream.samza.offset.default": "oldest",
            "systems.kafka.default.stream.samza.key.serde": "string",
            "systems.kafka.default.stream.samza.msg.serde": "json",
            "serializers.registry.string.class": "org.apache.samza.serializers.StringSerdeFactory",
            "serializers.registry.json.class": "org.apache.samza.serializers.JsonSerdeFactory",
            "stores.profiles.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "stores.default.changelog.replication.factor": "1",  # in grete this store has a changelog too
            "stores.profiles.key.serde": "string",
            "stores.profiles.msg.serde": "json",
            "stores.profiles.side.inputs": f"kafka.{self.profiles}",
            "stores.profiles.side.inputs.processor.factory": "grete.interop.Profiles$Filling",
            "views.target": self._target(of),
        }

    def fill(self, records: list[tuple[int, str | None, dict[str, Any]]]) -> None:
        """Append partition, key and value to the side input."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for partition, key, value in records:
            producer.produce(self.profiles, json.dumps(value), key, partition)
        assert producer.flush(30) == 0

    def view(self, *keys: str) -> None:
        """Append one view of each key to each partition; the last is where Samza commits."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for partition in range(PARTITIONS):
            for key in keys:
                producer.produce(self.views, json.dumps({"commit": key == keys[-1]}), key, partition)
            self._views[partition] += len(keys)
        assert producer.flush(30) == 0

    def run_samza(self) -> None:
        """Until it has sent something for each view, and committed the last."""
        self._starts += 1
        config = self._config("samza")
        checkpoints = f"__samza_checkpoint_ver_1_for_{config['job.name']}_1"
        with SamzaJob(config, self._directory / f"samza-{self._starts}") as job:

            def has_all() -> bool:
                job.check()
                return len(self.joined("samza")) == sum(self._views)

            def has_committed() -> bool:
                said = [(one.value or b"").decode() for one in topic_records(self._bootstrap, checkpoints, 1)]
                last = [f'"kafka.{self.views}.{p}":"{count - 1}"' for p, count in enumerate(self._views)]
                return all(any(one in value for value in said) for one in last)

            eventually(has_all, "Samza's outputs", within_s=60)
            eventually(has_committed, "Samza's commits", within_s=60)
            job.stop()

    def run_grete(self) -> None:
        """With Samza's properties but for its classes, until nothing is left."""
        (self._directory / "profiles.py").write_text(PROFILES)
        ported = {
            **self._config("grete"),
            "task.class": "profiles:Profiles",
            "stores.profiles.side.inputs.processor.factory": "profiles:Filling",
            "job.launcher": "process",
            "job.application.path": str(self._directory),
        }
        del ported["job.factory.class"]
        path = self._directory / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in ported.items()))
        command = [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config", str(path)]
        home = {"GRETE_HOME": str(self._directory / "home")}
        done = subprocess.run(
            command, env={**os.environ, **home}, capture_output=True, text=True, timeout=patient(120)
        )
        assert done.returncode == 0, done.stderr

    def joined(self, of: str) -> Places:
        """What was sent for the view at each partition and offset."""
        found = {}
        for record in topic_records(self._bootstrap, self._target(of), PARTITIONS):
            said = json.loads(record.value or b"")
            found[tuple(said["at"])] = said["profile"]
        return found


def test_each_view_has_the_profile_that_it_has_in_samza_also_after_a_restart(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Keys that came once, twice, left, came back, or never came; no tombstones, which Samza's JSON refuses."""
    job = ProfiledViews(kafka.bootstrap, tmp_path)
    keys = ("once", "twice", "left", "back", "other side", "nobody")
    job.fill([(0, key, {"name": key}) for key in ("once", "twice", "left", "back")])
    job.fill([(0, "twice", {"name": "again"}), (0, "left", LEFT), (0, None, {"name": "no key"})])
    job.fill([(0, "back", LEFT), (0, "back", {"name": "back again"})])
    job.fill([(1, "other side", {"name": "of partition 1"})])
    job.view(*keys)
    job.run_samza()
    job.run_grete()
    first = job.joined("samza")
    assert first == job.joined("grete")
    assert first[0, 1] == {"name": "again", "version": 2}
    assert first[0, 3] == {"name": "back again", "version": 1}
    assert [first[0, at] for at in (2, 4, 5)] == [None] * 3
    assert first[1, 4] == {"name": "of partition 1", "version": 1}

    job.fill([(0, "once", {"name": "later"}), (0, "twice", LEFT), (1, "nobody", {"name": "somebody"})])
    job.view(*keys)
    job.run_samza()
    job.run_grete()
    second = job.joined("samza")
    assert second == job.joined("grete")
    assert {place: second[place] for place in first} == first, "what was committed is not sent again"
    assert second[0, 6] == {"name": "later", "version": 2}
    assert second[0, 7] is None
    assert second[1, 11] == {"name": "somebody", "version": 1}
