"""A stateful job moves to grete and back, with Samza killed and stopped in the middle: no count is lost or doubled.

The real Samza 1.8.0 runs the job in its own container with RocksDB stores. It commits where a message says so and
nowhere else, so what it has processed after its last commit, and written to the changelog, is known to a message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.samza_job import SamzaJob
from tests.support.topic_records import consumer_of, topic_records

from grete.cli.main import main
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient, reaches
from grete.wire.java_hash import string_hash
from grete_workbench.real_samza import samza_config

USERS, PARTITIONS = 7, 2
VIEWS = """
import grete

class Views(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.target = context.config["views.target"]

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        at = [envelope.system_stream_partition.partition, int(envelope.offset)]
        collector.send(f"kafka.{self.target}", {"count": count, "at": at}, key=envelope.key)
"""


def key_of(partition: int, offset: int) -> str:
    """The keys of the two partitions have nothing in common."""
    return f"user-{partition}-{offset % USERS}"


class MovedJob:
    """Its topics, and the two that run it in turns."""

    def __init__(self, bootstrap: str, directory: Path, factor: int = 1) -> None:
        mark = uuid.uuid4().hex[:8]
        self.bootstrap, self.directory, self.home = bootstrap, directory, directory / "home"
        self.input, self.output, self.changelog = f"views-{mark}", f"counts-{mark}", f"changelog-{mark}"
        self.records, self.factor = 0, factor
        self._starts = 0
        self._commits: dict[int, int] = {}
        self.checkpoints = f"__samza_checkpoint_ver_1_for_views-{mark}_1"
        self.config = {
            **samza_config(bootstrap, f"views-{mark}"),
            "job.factory.class": "org.apache.samza.job.local.ThreadJobFactory",
            "task.class": "grete.interop.Views",
            "task.inputs": f"kafka.{self.input}",
            "task.commit.ms": "86400000",
            "job.elasticity.factor": str(factor),
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.default.stream.samza.offset.default": "oldest",
            "systems.kafka.default.stream.samza.key.serde": "string",
            "systems.kafka.default.stream.samza.msg.serde": "json",
            "serializers.registry.string.class": "org.apache.samza.serializers.StringSerdeFactory",
            "serializers.registry.json.class": "org.apache.samza.serializers.JsonSerdeFactory",
            "serializers.registry.integer.class": "org.apache.samza.serializers.IntegerSerdeFactory",
            "stores.counts.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
            "stores.counts.changelog": f"kafka.{self.changelog}",
            "stores.counts.key.serde": "string",
            "stores.counts.msg.serde": "integer",
            # every change goes to the changelog at once; caches would hold it back until the next commit
            "stores.counts.object.cache.size": "0",
            "stores.counts.write.batch.size": "0",
            "stores.default.changelog.replication.factor": "1",
            "views.target": self.output,
        }
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(topic, PARTITIONS, 1) for topic in (self.input, self.output)]
        for made in admin.create_topics(new).values():
            made.result(30)

    def append(self, records: int, *, commits: Mapping[int, int]) -> None:
        """To each partition; `commits` has the offset of each partition after which Samza commits."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in range(PARTITIONS):
            for offset in range(self.records, self.records + records):
                value = json.dumps({"commit": commits.get(partition) == offset})
                producer.produce(self.input, value, key_of(partition, offset), partition)
        assert producer.flush(30) == 0
        self.records += records
        self._commits = dict(commits)

    def run_samza(self, end: Callable[[SamzaJob], None], more: Mapping[str, str] | None = None) -> None:
        """Until all that there is was processed; then `end` it, which commits nothing."""
        self._starts += 1
        directory = self.directory / f"samza-{self._starts}"
        with SamzaJob(self.config | dict(more or {}), directory) as job:
            with closing(consumer_of(self.bootstrap, self.output, PARTITIONS)) as consumer:
                places: set[tuple[int, int]] = set()

                def processed() -> int:
                    job.check()
                    while (message := consumer.poll(0.1)) is not None:
                        if message.error() is None:
                            places.add(tuple(json.loads(message.value() or b"")["at"]))
                    return len(places)

                reaches(processed, PARTITIONS * self.records, "the messages that Samza processed")
            versions = (more or {}).get("task.checkpoint.write.versions", "1,2").split(",")
            eventually(lambda: self._is_committed(len(versions)), "Samza's commit after what it processed")
            end(job)

    def _is_committed(self, versions: int) -> bool:
        """Whether the commits that `append` asked for are in the checkpoint topic, in so many versions.

        A commit comes after the output of its message: a container killed in between has none.
        """
        if not self._commits:
            return True
        values = [(value or b"").decode() for _, _, value in self._read(self.checkpoints, 1)]

        def times(partition: int, offset: int) -> int:
            second = f'"kafka.{self.input}.{partition}":"{offset}"'
            first = (f'"partition":"{partition}"', f'"offset":"{offset}"')
            return sum(second in value or all(part in value for part in first) for value in values)

        return all(times(partition, offset) >= versions for partition, offset in self._commits.items())

    def run_grete(self) -> None:
        """With the same properties but for the class, until nothing is left."""
        (self.directory / "views.py").write_text(VIEWS)
        ported = {
            **self.config,
            "task.class": "views:Views",
            "job.launcher": "process",
            "job.application.path": str(self.directory),
        }
        del ported["job.factory.class"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "grete.testing.sparkless",
                "--until-drained",
                "--config",
                self.written(ported),
            ],
            env={**os.environ, "GRETE_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        assert done.returncode == 0, done.stderr

    def written(self, config: Mapping[str, str]) -> str:
        path = self.directory / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return str(path)

    def outputs(self) -> dict[tuple[int, int], set[tuple[str, int]]]:
        """(partition, offset) of a message -> (key, count) of its outputs; of the same message they are the same."""
        found: dict[tuple[int, int], set[tuple[str, int]]] = {}
        for _, key, value in self._read(self.output):
            document = json.loads(value or b"")
            found.setdefault(tuple(document["at"]), set()).add((key.decode(), document["count"]))
        return found

    def states(self) -> dict[int, dict[str, int]]:
        """The state in the changelog, by its partition: as any reader restores it."""
        partitions = PARTITIONS * self.factor
        found: dict[int, dict[str, int]] = {partition: {} for partition in range(partitions)}
        for partition, key, value in self._read(self.changelog, partitions):
            if value is None:
                found[partition].pop(key.decode(), None)
            else:
                found[partition][key.decode()] = int.from_bytes(value, "big")
        return found

    def _read(self, topic: str, partitions: int = PARTITIONS) -> Iterable[tuple[int, bytes, bytes | None]]:
        for record in topic_records(self.bootstrap, topic, partitions):
            yield record.partition, record.key or b"", record.value

    def has_committed_changelogs(self) -> bool:
        """Whether checkpoints say that the changelogs have a record of each message."""
        marks = {}
        for _, _, value in self._read(self.checkpoints, 1):
            for one in json.loads(value or b"{}").values():
                if isinstance(one, dict) and one.get("stream") == self.changelog:
                    last = one["offset"].rpartition(":")[2]
                    marks[one["partition"]] = 0 if last == "null" else int(last) + 1
        return sum(marks.values()) == PARTITIONS * self.records

    def assert_exact(self) -> None:
        """Each message was counted once; each of its outputs says so."""
        counts = [Counter[str]() for _ in range(PARTITIONS)]
        expected = {}
        for partition in range(PARTITIONS):
            for offset in range(self.records):
                key = key_of(partition, offset)
                counts[partition][key] += 1
                expected[partition, offset] = {(key, counts[partition][key])}
        assert self.outputs() == expected
        states = [state for _, state in sorted(self.states().items())]
        for partition in range(
            PARTITIONS
        ):  # tasks are in the order of their names, and so are their changelogs
            own = states[partition * self.factor : (partition + 1) * self.factor]
            assert own == [
                {k: n for k, n in counts[partition].items() if abs(string_hash(k)) % self.factor == bucket}
                for bucket in range(self.factor)
            ]


@pytest.mark.nightly  # test_moved_job.py moves a job forth and back in every run
@pytest.mark.timeout(300)
def test_counts_are_exact_after_samza_was_killed_and_stopped_between_its_commits(
    kafka: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = MovedJob(kafka.bootstrap, tmp_path)

    job.append(60, commits={0: 40, 1: 59})  # of partition 1 all is committed
    job.run_samza(SamzaJob.kill)
    assert main(["migrate", "samza", "--check", job.written(job.config), "--coordinator-stream"]) in (0, 1)
    assert "1 tasks are 19 records ahead of their checkpoints (Partition 0)" in capsys.readouterr().out
    job.append(15, commits={})
    job.run_grete()
    job.assert_exact()

    job.append(40, commits={0: 80, 1: 100})
    job.run_samza(SamzaJob.stop, {"task.checkpoint.write.versions": "2"})
    job.append(15, commits={})
    job.run_grete()
    job.assert_exact()

    job.append(20, commits={})  # Samza itself goes back to where grete was, and processes these again
    job.run_samza(SamzaJob.kill)
    job.run_grete()
    job.assert_exact()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_an_elastic_jobs_keys_and_state_are_where_samza_has_them(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samza 1.8.0 commits no offsets of an elastic job's inputs: where to go on is said by hand."""
    job = MovedJob(kafka.bootstrap, tmp_path, factor=2)
    job.append(60, commits={})

    def stop(samza: SamzaJob) -> None:
        eventually(job.has_committed_changelogs, "Samza's commit of all that its stores have")
        samza.stop()

    job.run_samza(stop, {"task.commit.ms": "500"})
    job.assert_exact()
    job.append(40, commits={})
    monkeypatch.setenv("GRETE_HOME", str(job.home))
    words = [
        "checkpoint",
        "rewind",
        "--config",
        job.written(job.config),
        "--state",
        "keep",
        "--to",
        "offset:60",
    ]
    assert main([*words, "--execute"]) == 0
    job.run_grete()
    job.assert_exact()
    job.append(20, commits={})
    job.run_grete()
    job.assert_exact()
