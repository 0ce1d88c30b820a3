"""Coordinator streams that were compacted: what is still known of earlier configurations, and what is kept."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.errors import ConfigError
from grete.keyed_log.memory import MemoryKeyedLog
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.metadata.config_history import config_generations, startable_settings
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.stream_compaction import StreamCompaction
from grete.sqlite_file import open_file

GOOD = {"job.name": "j", "task.class": "m:C", "task.inputs": "local.in"}
LIMIT = "task.max.records.per.batch"


@pytest.fixture
def stream() -> CoordinatorStream:
    clock = SystemClock()
    return CoordinatorStream(MemoryKeyedLog(clock), clock, source="test")


def read_again(stream: CoordinatorStream) -> CoordinatorStream:
    return CoordinatorStream(stream.log, SystemClock(), source="test")


def test_a_configuration_that_never_was_is_not_taken_for_one(stream: CoordinatorStream) -> None:
    """The first one had a limit, which a second has replaced: what is left of the first has none, and is valid."""
    stream.write_config({**GOOD, LIMIT: "100"}, run_id="a")
    stream.change_config({LIMIT: "5000"}, run_id="a")
    stream.log.compact()
    left = config_generations(stream.log)
    assert [
        one.whole for one in left if dict(one.config) not in ({**GOOD, LIMIT: "100"}, {**GOOD, LIMIT: "5000"})
    ] == [False]


def test_generations_after_the_first_that_is_left_are_whole(stream: CoordinatorStream) -> None:
    stream.write_config({**GOOD, LIMIT: "100"}, run_id="a")
    stream.change_config({LIMIT: "200"}, run_id="a")
    stream.log.compact()
    stream.change_config({LIMIT: "300"}, run_id="a")
    stream.change_config({LIMIT: "400"}, run_id="a")
    whole = [dict(one.config) for one in config_generations(stream.log) if one.whole]
    assert whole[-2:] == [{**GOOD, LIMIT: "300"}, {**GOOD, LIMIT: "400"}]
    assert all(config in ({**GOOD, LIMIT: value} for value in ("200", "300", "400")) for config in whole)


def test_a_start_does_not_go_back_to_what_is_left_of_a_configuration(stream: CoordinatorStream) -> None:
    stream.write_config({**GOOD, LIMIT: "100"}, run_id="a")
    stream.change_config({LIMIT: "abc"}, run_id="a")
    assert startable_settings(stream).raw[LIMIT] == "100"
    stream.log.compact()
    with pytest.raises(ConfigError, match=LIMIT):
        startable_settings(read_again(stream))


class Brokers(SqliteKeyedLog):
    """Compacts by itself, up to where it likes, as Kafka's cleaner does."""

    keeps_shadowed = False

    def clean(self, before: int) -> None:
        """Leave the last record of each key below the offset."""
        self.drop_shadowed(before=before)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_to_be_whole_is_what_the_job_had(seed: int, tmp_path: Path) -> None:
    """Own and foreign changes, other records between them, and cleaning up to anywhere, several times."""
    chance = random.Random(seed)
    clock = SystemClock()
    log = Brokers(open_file(tmp_path / "log.db"), "log", clock, owns_file=True)
    stream = CoordinatorStream(log, clock, source="test")
    stream.write_config({**GOOD, **{f"k{i}": "0" for i in range(4)}}, run_id="a")
    known = {log.end(): stream.config()}
    for step in range(12):
        key, value = f"k{chance.randrange(6)}", chance.choice(["1", "2", None])
        match chance.choice(["own", "own", "foreign", "other", "clean"]):
            case "own":
                stream.change_config({key: value}, run_id="a")
            case "foreign":
                stream.put("set-config", {key: value})
            case "other":
                stream.put("set-container-host-assignment", {"0": f"host-{step}"})
            case "clean":
                log.clean(chance.randrange(log.end() + 2))
        known[log.end()] = stream.config()
    for one in config_generations(log):
        if one.whole:
            assert dict(one.config) == known[one.number]
    assert config_generations(log)[-1].config == stream.config()
    log.close()


def test_what_is_superseded_goes_and_the_last_generations_stay_whole(tmp_path: Path) -> None:
    clock = SystemClock()
    with closing(SqliteKeyedLog(open_file(tmp_path / "log.db"), "log", clock, owns_file=True)) as log:
        stream = CoordinatorStream(log, clock, source="test")
        compaction = StreamCompaction(stream, due=500, generations=10)
        stream.write_config({**GOOD, LIMIT: "0"}, run_id="a")
        state = ("grete-job-state", "current")
        for number in range(1, 31):
            stream.append(stream.entry(*state, {"state": f"{number} {i}"}) for i in range(30))
            stream.change_config({LIMIT: str(number)}, run_id="a")
            if number == 2:
                tailing = read_again(stream)
                tailing.catch_up()
            compaction.step()
        assert compaction.step() == 0
        assert len(list(log.read())) < 500
        again = read_again(stream)
        assert tailing.config() == again.config() == stream.config()
        assert tailing.messages(state[0]) == again.messages(state[0]) == stream.messages(state[0])
        whole = [one.config[LIMIT] for one in config_generations(log) if one.whole]
        assert whole[-10:] == [str(number) for number in range(21, 31)]
        assert all(
            one.config == {**GOOD, LIMIT: one.config[LIMIT]} for one in config_generations(log) if one.whole
        )


def test_a_long_stream_is_gone_through_a_piece_at_a_time(tmp_path: Path) -> None:
    clock = SystemClock()
    with closing(SqliteKeyedLog(open_file(tmp_path / "log.db"), "log", clock, owns_file=True)) as log:
        stream = CoordinatorStream(log, clock, source="test")
        stream.write_config(GOOD, run_id="a")
        stream.append(stream.entry("grete-job-state", "current", {"state": str(i)}) for i in range(1_000))
        compaction = StreamCompaction(stream, due=100, at_once=300)
        stream.catch_up()
        dropped = [compaction.step() for _ in range(6)]
        assert max(dropped) <= 300
        assert dropped[-1] == 0
        assert len(list(log.read())) == len(GOOD) + 2
