"""Output streams: made by the coordinator from all inputs, and looked for by containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream
from grete.systems.local.system import LocalSystem
from grete.systems.outputs import OutputSystems, check_outputs, create_outputs
from grete.testing.clock import ManualClock

CONFIG = {
    "task.outputs": "local.out, local.few",
    "task.poison.dead-letter.stream": "local.dead",
    "streams.small.samza.system": "local",
    "streams.small.samza.physical.name": "few",
    "streams.small.samza.partitions": "2",
}
INPUTS = {SystemStream("local", "in"): 3, SystemStream("local", "rules"): 5}


@pytest.fixture
def outputs(system: LocalSystem, home: Path) -> Iterator[OutputSystems]:
    with closing(OutputSystems(Settings.of(CONFIG), "local", system, home, ManualClock())) as made:
        yield made


def test_an_output_has_as_many_partitions_as_it_says_itself_or_as_the_largest_input_of_the_job(
    system: LocalSystem, outputs: OutputSystems
) -> None:
    create_outputs(Settings.of(CONFIG), outputs, INPUTS)
    assert {name: system.partition_count(name) for name in system.streams()} == {
        "out": 5,
        "dead": 5,
        "few": 2,
    }


def test_an_output_that_is_there_stays_as_it_is(system: LocalSystem, outputs: OutputSystems) -> None:
    create_outputs(Settings.of(CONFIG), outputs, {SystemStream("local", "in"): 1})
    create_outputs(Settings.of(CONFIG), outputs, INPUTS)
    assert system.partition_count("out") == 1
    check_outputs(Settings.of(CONFIG), outputs)


def test_a_container_makes_no_output_and_names_the_one_that_is_not_there(
    system: LocalSystem, outputs: OutputSystems
) -> None:
    with pytest.raises(
        StreamNotFound, match=r"local\.out is not there any more.*grete stream create local\.out"
    ):
        check_outputs(Settings.of(CONFIG), outputs)
    assert system.streams() == []
