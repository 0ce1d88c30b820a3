"""Processors on several machines share no files: a configuration that would need them is refused."""

from __future__ import annotations

import pytest

from grete.config.rules.validate import check

SPREAD = {
    "job.name": "words",
    "task.class": "words:Words",
    "task.inputs": "kafka.in",
    "systems.kafka.samza.factory": "kafka",
    "systems.kafka.producer.bootstrap.servers": "broker:9092",
    "job.coordinator.system": "kafka",
    "job.launcher": "processors",
    "processor.address": "10.0.0.7",
}


def problems(settings: dict[str, str]) -> list[str]:
    return [error for error in check({**SPREAD, **settings}).errors if "processor.address" in error]


@pytest.mark.parametrize("election", ["", "kafka", "zookeeper", "azure", "kubernetes"])
def test_streams_of_kafka_and_an_election_elsewhere_are_reached_from_all_machines(election: str) -> None:
    assert problems({"job.coordinator.factory": election} if election else {}) == []


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"job.coordinator.system": "local"}, "job.coordinator.system names the embedded system"),
        ({"task.inputs": "local.in"}, "task.inputs names the embedded system"),
        ({"task.outputs": "local.out"}, "task.outputs names the embedded system"),
        ({"job.coordinator.factory": "sqlite"}, "job.coordinator.factory=sqlite elects by a file"),
        ({"app.class": "words:Words", "task.class": ""}, "app.class is a pipeline"),
    ],
)
def test_what_one_machine_has_in_files_is_refused_with_the_key_and_the_way_out(
    settings: dict[str, str], key: str
) -> None:
    [error] = problems(settings)
    assert error.startswith(f"processor.address=10.0.0.7: {key}")
    assert "or remove processor.address to run all processors on this machine" in error


def test_one_machine_may_have_everything_in_files() -> None:
    assert "processor.address" not in str(
        check({**SPREAD, "processor.address": "", "task.inputs": "local.in"})
    )
