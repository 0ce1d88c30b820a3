"""Entries older than `stores.*.rocksdb.ttl.ms` are not there: for tasks, after restarts, in copies and changelogs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import apsw
import pytest
from tests.support.isolated_application import COUNTER, Start, sent
from tests.support.isolated_application import start as start
from tests.support.shelf import Shelf

from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.container.housekeeping import policies
from grete.errors import ConfigError
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import startpoint_entry, startpoint_key
from grete.migration.note import Outcome
from grete.migration.take_over import changelog
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.model.streams import StreamSpec
from grete.systems.kafka.stream_settings import KafkaStreamSettings
from grete.systems.local.compactor import CompactionLimits
from grete.systems.local.housekeeping import Housekeeper
from grete.systems.local.system import LocalSystem
from grete.tasks.stores.rewind import Changelog
from grete.testing.clock import ManualClock
from grete.testing.job import JobUnderTest
from grete.testing.job_model import assignments_of
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

TTL = "stores.shelf.rocksdb.ttl.ms"
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.shelf.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
    "stores.shelf.key.serde": "string",
    "stores.shelf.msg.serde": "json",
    TTL: "60000",
}
SSP, TASK = SystemStreamPartition("local", "in", 0), TaskName("Partition 0")


def put(job: JobUnderTest, **entries: int | None) -> None:
    for key, value in entries.items():
        job.send("local.in", value, key=key)
    job.run()


def looked(job: JobUnderTest) -> dict[str, int]:
    """What the task finds, by every way to read, and what the job's results say."""
    job.send("local.in", None, key="look")
    job.run()
    by_get, *others = job.messages("local.out")[-1]
    assert others == [by_get] * 3
    assert job.store("shelf", TASK) == by_get
    return dict(by_get)


@pytest.fixture
def job(start_job: StartJob) -> JobUnderTest:
    """`a` was put 40 s ago and `b` 20 s ago; both live for 60 s."""
    made = start_job(Shelf, CONFIG)
    put(made, a=1)
    made.advance(20)
    put(made, b=2)
    made.advance(20)
    return made


def rows(job: JobUnderTest, directory: str = "stores") -> list[bytes]:
    """The keys in the file of the one store."""
    [path] = job.directory.glob(f"jobs/*/{directory}/**/shelf.db")
    return [key for (key,) in apsw.Connection(str(path)).execute("SELECT k FROM kv ORDER BY k")]


def test_an_entry_is_there_up_to_its_age_and_not_beyond(job: JobUnderTest) -> None:
    job.advance(20)
    assert looked(job) == {"a": 1, "b": 2}
    job.advance(0.001)
    assert looked(job) == {"b": 2}


def test_a_put_begins_anew_and_a_read_does_not(job: JobUnderTest) -> None:
    put(job, a=1)
    assert looked(job) == {"a": 1, "b": 2}
    job.advance(60)
    assert looked(job) == {"a": 1}


def test_a_deletion_stays_one(job: JobUnderTest) -> None:
    put(job, b=None)
    assert looked(job) == {"a": 1}
    job.restart(lose_stores=True)
    assert looked(job) == {"a": 1}


@pytest.mark.parametrize("lose_stores", [False, True])
def test_age_counts_from_the_put_and_not_from_the_commit(start_job: StartJob, lose_stores: bool) -> None:
    clock = ManualClock()

    class TakesLong(Shelf):
        def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def] # as its base
            super().process(envelope, collector, coordinator)
            clock.advance(0 if envelope.key == "look" else 30)

    job = start_job(TakesLong, CONFIG, clock=clock)
    job.send("local.in", 1, key="a")
    put(job, b=2)
    job.restart(lose_stores=lose_stores)
    assert looked(job) == {"a": 1, "b": 2}, "60 s and 30 s old"
    job.advance(1)
    assert looked(job) == {"b": 2}


def test_what_was_not_committed_is_put_when_it_is_processed_again(start_job: StartJob) -> None:
    job = start_job(Shelf, CONFIG)
    job.send("local.in", 1, key="a")
    job.run_batch(commit=False)
    job.advance(59)
    job.run()
    job.advance(60)
    assert looked(job) == {"a": 1}


@pytest.mark.parametrize("lose_stores", [False, True])
def test_a_restart_and_a_restore_do_not_make_entries_younger(job: JobUnderTest, lose_stores: bool) -> None:
    job.restart(lose_stores=lose_stores)
    job.advance(21)
    assert looked(job) == {"b": 2}
    job.restart(lose_stores=lose_stores)
    job.advance(20)
    assert looked(job) == {}


def test_what_has_expired_goes_from_the_file(job: JobUnderTest) -> None:
    put(job, c=3)
    assert rows(job) == [b"a", b"b"], "what is committed is applied with the next batch"
    job.advance(41)
    put(job, d=4)
    assert rows(job) == [b"c"]


def test_a_standby_copy_has_the_same_times_and_loses_what_has_expired(start_job: StartJob) -> None:
    job = start_job(Shelf, CONFIG | {"job.standbytasks.replication.factor": "2"})
    put(job, a=1)
    job.advance(40)
    put(job, b=2)
    job.follow()
    assert rows(job, "standby-0") == [b"a", b"b"]
    job.advance(21)
    job.follow()
    assert rows(job, "standby-0") == [b"b"]
    job.restart(lose_stores=True)
    assert looked(job) == {"b": 2}
    job.advance(40)
    assert looked(job) == {}


@pytest.mark.parametrize("lose_stores", [False, True])
def test_a_rewind_brings_entries_back_with_their_own_age(job: JobUnderTest, lose_stores: bool) -> None:
    put(job, a=3, b=None, c=4)
    now_ms = job.clock.wall_ms()
    stream = job.coordinator_stream()
    point = Startpoint(StartpointKind.SPECIFIC, now_ms, offset="5")
    state = StateRequest(StateChoice.RESTORE, now_ms, {"shelf": 2})
    stream.append([startpoint_entry(startpoint_key(SSP, TASK), point), state_entry(stream, TASK, state)])
    job.restart(lose_stores=lose_stores)
    assert looked(job) == {"a": 1, "b": 2}
    job.advance(21)
    assert looked(job) == {"b": 2}


def test_a_message_that_is_undone_leaves_the_age_as_it_was(start_job: StartJob) -> None:
    class Refuses(Shelf):
        def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def] # as its base
            super().process(envelope, collector, coordinator)
            if envelope.message == 13:
                raise ValueError("thirteen")

    policy = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    job = start_job(Refuses, CONFIG | policy)
    put(job, a=1)
    job.advance(40)
    put(job, a=13)
    assert looked(job) == {"a": 1}
    job.advance(21)
    assert looked(job) == {}


def test_expiry_can_be_set_and_taken_back_on_a_job_that_has_state(start_job: StartJob) -> None:
    job = start_job(Shelf, {key: value for key, value in CONFIG.items() if key != TTL})
    put(job, a=1)
    job.advance(100)
    put(job, b=2)
    job.restart(config={TTL: "60000"})
    assert looked(job) == {"b": 2}
    job.restart(config={TTL: "-1"})
    job.advance(100)
    assert looked(job) == {"b": 2}


@pytest.mark.parametrize("ttl_ms", ["0", "-1", str(2**63 - 1)])
def test_zero_less_and_for_ever_let_entries_stay(start_job: StartJob, ttl_ms: str) -> None:
    job = start_job(Shelf, CONFIG | {TTL: ttl_ms})
    put(job, a=1)
    job.advance(10**9)
    assert looked(job) == {"a": 1}


@pytest.mark.parametrize("value", ["-2", "a day", "1.5", ""])
def test_another_value_is_refused_with_its_key(value: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(f'{TTL}={value!r}')}.*; write "):
        validate(CONFIG | {TTL: value})


@pytest.mark.parametrize(
    "serdes", [("json", "json"), ("string", "string"), ("bytes", "bytes"), ("long", "long")]
)
def test_serdes_do_not_see_the_times(start_job: StartJob, serdes: tuple[str, str]) -> None:
    key, value = {
        "json": ({"k": [1]}, None),
        "string": ("käse", ""),
        "bytes": (b"\0\xff", b""),
        "long": (-1, 2**62),
    }[serdes[0]]
    value = {"of": "json"} if value is None else value

    class Keeps(Shelf):
        def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def] # as its base
            if envelope.message:
                self._shelf.put(key, value)
            collector.send(
                "local.out", [self._shelf.get(key) == value, list(self._shelf.all()) == [(key, value)]]
            )

    kinds = {"stores.shelf.key.serde": serdes[0], "stores.shelf.msg.serde": serdes[1]}
    job = start_job(Keeps, CONFIG | kinds)
    put(job, x=1)
    job.advance(60)
    put(job, x=0)
    job.advance(1)
    put(job, x=0)
    assert job.messages("local.out") == [[True, True], [True, True], [False, False]]


def test_samzas_cache_and_batch_settings_change_nothing(start_job: StartJob) -> None:
    sizes = {"stores.shelf.object.cache.size": "1", "stores.shelf.write.batch.size": "1"}
    large = {
        "stores.shelf.changelog.max.message.size.bytes": "9000000",
        "stores.shelf.drop.large.messages": "true",
    }
    job = start_job(Shelf, CONFIG | sizes | large)
    put(job, a=1)
    job.advance(61)
    put(job, b=2)
    assert looked(job) == {"b": 2}


# --- the embedded system's changelog ---


def tidied(job: JobUnderTest) -> None:
    [assignment] = assignments_of(job.model, 1, {})
    limits = CompactionLimits(min_dirty_bytes=1)
    keeper = Housekeeper(job._system, policies(assignment), [], job.clock, limits)
    while keeper.step():
        pass


def offsets(job: JobUnderTest) -> list[int]:
    stream = job._settings.store("shelf").changelog_stream(job._settings.job.id)
    held = job._system.offsets(stream)[0]
    return [] if held.oldest is None else list(range(int(held.oldest), int(held.upcoming)))


def test_what_has_expired_goes_from_the_changelog(job: JobUnderTest) -> None:
    tidied(job)
    assert offsets(job) == [0, 1]
    job.advance(21)
    tidied(job)
    assert offsets(job) == [1]
    job.restart(lose_stores=True)
    assert looked(job) == {"b": 2}
    job.advance(40)
    tidied(job)
    assert offsets(job) == []
    job.restart(lose_stores=True)
    assert looked(job) == {}
    put(job, a=5)
    job.restart(lose_stores=True)
    assert looked(job) == {"a": 5}


def test_a_file_that_is_behind_what_has_gone_from_the_changelog_is_rebuilt(job: JobUnderTest) -> None:
    job.stop()
    [folder] = job.directory.glob("jobs/*/stores")
    shutil.copytree(folder, behind := job.directory / "behind")
    job.start()
    put(job, c=3)
    job.advance(30)
    put(job, a=9)
    job.stop()
    shutil.rmtree(folder)
    shutil.move(behind, folder)
    job.advance(31)
    tidied(job)
    assert offsets(job) == [3]
    job.start()
    assert looked(job) == {"a": 9}


def test_a_rewind_to_before_what_has_gone_gives_what_still_lives(job: JobUnderTest) -> None:
    put(job, c=3)
    job.advance(41)
    put(job, c=4)
    put(job, d=5)
    tidied(job)
    assert offsets(job) == [2, 3, 4]
    stream = job._settings.store("shelf").changelog_stream(job._settings.job.id)
    changelog = Changelog(job._system, stream, 0, is_expiring=True)
    assert changelog.back_to(1) == {b"c": None, b"d": None}, "what was there then has expired"
    assert changelog.back_to(2) == {b"c": None, b"d": None}
    back = changelog.back_to(3)
    assert (back.pop(b"c") or b"")[-1:] == b"3"
    assert back == {b"d": None}


def test_compaction_goes_on_after_the_first_records_have_gone(tmp_path: Path) -> None:
    from tests.unit.container.test_housekeeping import keeper, records, run, stamped

    from grete.model.streams import StreamPolicy

    clock = ManualClock()
    system = LocalSystem(tmp_path / "local", clock)
    system.create_stream(StreamSpec("c", 1, compacted=True))
    stamped(system, "c", ("a", "0"), at_ms=clock.wall_ms() - 61_000)
    housekeeper = keeper(system, clock, StreamPolicy("c", retention_ms=60_000))
    run(housekeeper)
    assert system.offsets("c")[0].oldest is None
    for number in range(3):
        stamped(system, "c", ("b", f"{number}"), ("c", f"{number}"), at_ms=clock.wall_ms())
    clock.advance(31)
    run(housekeeper)
    assert records(system, "c", 1) == [(5, b"b", b"2"), (6, b"c", b"2")]
    system.close()


# --- the application's own process ---


def test_entries_expire_in_an_application_with_its_own_process(start: Start) -> None:
    """Its clock is the machine's: a millisecond is over when the next process has started, an hour is not."""
    ttl = {"stores.counts.rocksdb.ttl.ms": "1"}
    job = start(COUNTER, **ttl)
    assert sent(job, "a")[-1] == 1
    job.restart(lose_stores=True)
    assert sent(job, "a")[-1] == 1
    job.restart(config={"stores.counts.rocksdb.ttl.ms": "3600000"})
    assert sent(job, "a", "a")[-2:] == [2, 3]


# --- topics ---


def topic_settings(**own: str) -> dict[str, str]:
    extra = {f"stores.shelf.changelog.kafka.{key.replace('_', '.')}": value for key, value in own.items()}
    settings = Settings.of(CONFIG | {"job.name": "j", "stores.shelf.changelog": "kafka.c"} | extra)
    return dict(KafkaStreamSettings(settings, "kafka").of(StreamSpec("c", 1, compacted=True)).config)


def test_the_topic_of_a_changelog_is_compacted_and_deletes_by_age() -> None:
    made = topic_settings()
    wanted = {"cleanup.policy": "compact,delete", "retention.ms": "60000", "segment.ms": "600000"}
    assert {key: made[key] for key in wanted} == wanted


def test_what_the_configuration_says_of_the_topic_comes_first() -> None:
    made = topic_settings(cleanup_policy="delete", retention_ms="7")
    assert (made["cleanup.policy"], made["retention.ms"]) == ("delete", "7")


@pytest.mark.parametrize(
    ("topic", "own", "says"),
    [
        ("compact,delete 60000", "", ""),
        ("delete 60000", "", ""),
        ("delete 90000", "", ""),
        ("compact -1", "", "add-config cleanup.policy=[compact,delete],retention.ms=60000"),
        ("delete -1", "", "would stay in it for ever"),
        ("delete 59999", "", "entries would be lost before"),
        ("delete 59999", "retention.ms=59999", ""),
        ("compact -1", "cleanup.policy=compact retention.ms=-1", ""),
    ],
)
def test_a_topic_that_is_there_is_judged_by_what_expires(topic: str, own: str, says: str) -> None:
    policy, kept_ms = topic.split()
    extra = {
        f"stores.shelf.changelog.kafka.{key}": value
        for key, _, value in (one.partition("=") for one in own.split())
    }
    settings = KafkaStreamSettings(
        Settings.of(CONFIG | {"job.name": "j", "stores.shelf.changelog": "kafka.c"} | extra), "kafka"
    )
    found = settings.changelog_problem("c", {"cleanup.policy": policy, "retention.ms": kept_ms})
    assert bool(found) == bool(says)
    if found is not None:
        assert says in f"{found.says}; {found.way_out}"
        note = changelog("shelf", "kafka.c", 1, 1, found)
        assert (note.outcome, note.way_out) == (Outcome.BLOCKS, found.way_out)


def test_without_expiry_a_topic_that_deletes_is_refused() -> None:
    settings = Settings.of({"job.name": "j", "stores.shelf.changelog": "kafka.c"})
    found = KafkaStreamSettings(settings, "kafka").changelog_problem(
        "c", {"cleanup.policy": "compact,delete", "retention.ms": "60000"}
    )
    assert "deleted by age" in str(found)
