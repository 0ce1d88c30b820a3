"""A cluster's executors are on other machines: what they could not reach is refused with the configuration."""

from __future__ import annotations

import pytest

from grete.config.rules.validate import check

KAFKA = {
    "job.name": "words",
    "task.class": "words:Words",
    "task.inputs": "kafka.in",
    "systems.kafka.samza.factory": "kafka",
    "systems.kafka.producer.bootstrap.servers": "broker:9092",
    "job.coordinator.system": "kafka",
}
CLUSTER = {"spark.master": "spark://master:7077"}


def errors(**more: str) -> list[str]:
    given = {key.replace("__", "-").replace("_", "."): value for key, value in more.items()}
    return [error for error in check({**KAFKA, **CLUSTER, **given}).errors if "spark.master" in error]


def test_streams_of_kafka_are_reached_from_a_cluster() -> None:
    assert errors(task_outputs="kafka.out") == []


@pytest.mark.parametrize("master", ["local", "local[4]", "local-cluster[2,1,1024]"])
def test_executors_of_this_machine_reach_its_files(master: str) -> None:
    assert errors(spark_master=master, task_inputs="local.in", task_outputs="local.out") == []


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"task.inputs": "local.in"}, "task.inputs"),
        ({"task.outputs": "local.out"}, "task.outputs"),
        (
            {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"},
            "task.poison.dead-letter.stream",
        ),
        ({"task.log4j.system": "local"}, "task.log4j.system"),
    ],
)
def test_the_embedded_system_is_refused_with_the_key_and_the_way_out(
    settings: dict[str, str], key: str
) -> None:
    [error] = [one for one in check({**KAFKA, **CLUSTER, **settings}).errors if "spark.master" in one]
    assert error.startswith(f"spark.master=spark://master:7077: {key} names the embedded system 'local'")
    assert "Name streams of Kafka, or remove spark.master" in error


def test_coordinators_may_keep_their_stream_in_files_of_their_machine() -> None:
    assert errors(job_coordinator_system="local") == []


def test_a_container_whose_driver_the_cluster_would_place_is_refused_with_the_way_out() -> None:
    given = {**KAFKA, **CLUSTER, "job.launcher": "spark_submit"}
    assert check(given).errors == ()
    [error] = check({**given, "spark.submit.deployMode": "cluster"}).errors
    assert "spark.submit.deployMode=cluster" in error
    assert "grete deploy" in error
