"""An input that is deleted and made again within a second, under a running pipeline: Spark would read on at the old
offsets, and leave out what the new topic begins with."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.topic_records import topic_records

from grete.errors import StreamNotFound, StreamRecreated
from grete.spark.pipeline.same_inputs import SameInputs
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

APPLICATION = """
import grete

class Both(grete.DataFramePipeline):
    output = "kafka.{name}-out"

    def build(self, inputs):
        return inputs["kafka.{name}-a"].select("value").union(inputs["kafka.{name}-b"].select("value"))
"""
PROPERTIES = """
job.name={name}
job.application.path=.
app.class=counter:Both
task.inputs=kafka.{name}-a,kafka.{name}-b
task.outputs=kafka.{name}-out
task.checkpoint.replication.factor=1
job.coordinator.system=local
systems.local.samza.factory=local
systems.kafka.samza.factory=kafka
systems.kafka.samza.offset.default=oldest
systems.kafka.default.stream.replication.factor=1
systems.kafka.producer.bootstrap.servers={bootstrap}
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


class Topics:
    """Two inputs of two partitions, and the output."""

    def __init__(self, bootstrap: str) -> None:
        self.name = f"again-{uuid.uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        for end in ("a", "b", "out"):
            self.create(end)

    def create(self, end: str) -> None:
        topic = f"{self.name}-{end}"
        self._admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)

    def recreate(self, end: str) -> None:
        topic = f"{self.name}-{end}"
        self._admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in self._admin.list_topics(timeout=10).topics, "it is gone")
        self.create(end)

    def fill(self, end: str, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})  # a new one knows of the new topic
        for number in numbers:
            producer.produce(f"{self.name}-{end}", b"%d" % number, None, number % 2)
        assert producer.flush(30) == 0

    def rows(self) -> list[int]:
        """What is committed in the output, sorted."""
        return sorted(int(one.value or b"") for one in topic_records(self._bootstrap, f"{self.name}-out", 2))


@pytest.mark.spark
@pytest.mark.fault
@pytest.mark.timeout(300)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_more", [True, False], ids=["more records", "fewer records"])
def test_nothing_of_it_is_committed_and_the_job_ends_and_says_so(
    kafka: KafkaCluster, tmp_path: Path, job_maker: Callable[..., Any], has_more: bool
) -> None:
    topics = Topics(kafka.bootstrap)
    words = {"name": topics.name, "bootstrap": kafka.bootstrap}
    job = job_maker(tmp_path, APPLICATION.format(**words), PROPERTIES.format(**words))
    topics.fill("a", range(20))
    topics.fill("b", range(100, 120))
    before = [*range(20), *range(100, 120)]
    with (tmp_path / "output").open("wb") as output:
        running = subprocess.Popen(job.command("run"), env=job.environment(), stdout=output, stderr=output)
        try:
            eventually(lambda: topics.rows() == before, "what was there is in the output", within_s=90)
            topics.recreate("a")
            topics.fill("a", range(1_000, 1_060 if has_more else 1_004))
            assert running.wait(patient(90)) != 0
        finally:
            running.kill()
            running.wait()
    assert f"kafka.{topics.name}-a was deleted and recreated" in (tmp_path / "output").read_text()
    assert "restarting" not in (tmp_path / "output").read_text(), "no start can mend it"
    assert topics.rows() == before
    again = job.run()
    assert again.returncode != 0
    assert "checkpoint rewind" in again.stderr


def test_who_watches_has_what_it_saw_and_no_word_of_an_answer_that_did_not_come() -> None:
    answers = iter([StreamNotFound("away"), None, StreamRecreated("another")])

    def compare() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    def has_seen() -> bool:
        try:
            watched.check_seen()
        except StreamRecreated:
            return True
        return False

    with closing(SameInputs(compare, every_s=0.01)) as watched:
        eventually(has_seen, "the third answer")
        with pytest.raises(StopIteration):
            watched.check_now()
