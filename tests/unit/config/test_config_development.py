"""`--dev`: a job that runs on one broker."""

from __future__ import annotations

from grete.config.derived import dev_overrides

KAFKA = {"systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory"}


def test_every_topic_has_one_copy_where_nothing_says_how_many() -> None:
    config = {
        **KAFKA,
        "stores.counts.factory": "grete.store.sqlite",
        "task.checkpoint.replication.factor": "2",
    }
    assert dev_overrides(config) == {
        "job.coordinator.replication.factor": "1",
        "stores.counts.changelog.replication.factor": "1",
        "systems.kafka.default.stream.replication.factor": "1",
    }


def test_a_job_on_the_embedded_system_needs_none() -> None:
    config = {"systems.local.samza.factory": "local", "stores.counts.factory": "grete.store.sqlite"}
    assert dev_overrides(config) == {}
