"""A change says what it touches, and one that would part a task from its state is refused."""

from __future__ import annotations

import pytest

from grete.config.key import ChangeClass
from grete.config.keys import KEYS
from grete.config.rules.changes import diff, refused_changes, set_once_part
from grete.config.rules.fingerprint import fingerprint

GROUPER = "job.systemstreampartition.grouper.factory"
STATEFUL = {"job.name": "j", "stores.s.factory": "grete.store.sqlite", "task.inputs": "local.in"}


def class_of(key: str, old: str | None, new: str | None) -> ChangeClass:
    before, after = ({key: v} if v is not None else {} for v in (old, new))
    (change,) = diff(before, after)
    return change.change_class


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("task.shutdown.ms", ChangeClass.LIVE),
        ("task.window.ms", ChangeClass.RESTART_QUERY),
        ("job.container.count", ChangeClass.RESTART_QUERY),
        ("job.autosizing.container.count", ChangeClass.RESTART_QUERY),
        ("job.host-affinity.enabled", ChangeClass.RESTART_QUERY),
        ("job.launcher", ChangeClass.RESTART_CONTAINER),
        (GROUPER, ChangeClass.SET_ONCE),
        ("app.run.id", ChangeClass.INTERNAL),
        ("spark.executor.memory", ChangeClass.RESTART_CONTAINER),
        ("stores.s.key.serde", ChangeClass.SET_ONCE),
        ("systems.k.consumer.fetch", ChangeClass.RESTART_QUERY),
        ("my.own.key", ChangeClass.RESTART_CONTAINER),
        ("job.jmx.enabled", ChangeClass.LIVE),
    ],
)
def test_each_change_has_a_class(key: str, expected: ChangeClass) -> None:
    assert class_of(key, None, "77") is expected


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        (GROUPER, None, "GroupByPartitionFactory"),
        (
            GROUPER,
            "org.apache.samza.container.grouper.stream.GroupByPartitionFactory",
            "GroupByPartitionFactory",
        ),
        ("stores.s.key.serde", "string", None),
        ("job.coordinator.system", None, "local"),
        ("task.checkpoint.factory", None, "grete.checkpoint.log"),
        ("yarn.container.count", "1", None),
    ],
)
def test_the_same_value_in_other_words_touches_nothing(key: str, old: str | None, new: str | None) -> None:
    assert class_of(key, old, new) is ChangeClass.LIVE


@pytest.mark.parametrize("values", [(None, "grete.store.sqlite"), ("grete.store.sqlite", None)])
def test_a_store_that_comes_or_goes_restarts_containers_also_of_the_default_kind(
    values: tuple[str | None, str | None],
) -> None:
    """A container that went on was asked for the store, and ended with the advice to set the key that was set."""
    assert class_of("stores.s.factory", *values) is ChangeClass.RESTART_CONTAINER
    config = {"task.inputs": "local.in"}
    with_store = {**config, "stores.s.factory": "grete.store.sqlite"}
    assert fingerprint(config, "process") != fingerprint(with_store, "process")
    samzas = {**config, "stores.s.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory"}
    assert fingerprint(samzas, "process") == fingerprint(with_store, "process")


def test_the_default_changelog_may_be_written_out() -> None:
    for written in ("j-1-s-changelog", "local.j-1-s-changelog"):
        assert refused_changes(STATEFUL, {**STATEFUL, "stores.s.changelog": written}) == []


def test_a_changelog_may_not_move_to_another_system_under_its_name() -> None:
    moved = {**STATEFUL, "stores.s.changelog": "other.j-1-s-changelog"}
    assert len(refused_changes(STATEFUL, moved)) == 1


def test_another_grouper_on_a_stateful_job_is_refused_with_the_way_out() -> None:
    (refusal,) = refused_changes(STATEFUL, {**STATEFUL, GROUPER: "GroupBySystemStreamPartitionFactory"})
    assert GROUPER in refusal
    assert "job.id" in refusal


@pytest.mark.parametrize(
    "change",
    [
        {"systems.local.path": "/elsewhere"},
        {"stores.s.changelog": "local.other"},
        {"stores.s.key.serde": "json"},
        {"job.systemstreampartition.input.expansion.enabled": "false"},
    ],
)
def test_what_decides_over_state_is_set_once(change: dict[str, str]) -> None:
    assert len(refused_changes(STATEFUL, {**STATEFUL, **change})) == 1


def test_a_job_without_state_may_change_what_leaves_its_checkpoints_where_they_are() -> None:
    stateless = {"job.name": "j", "task.inputs": "local.in"}
    changed = {**stateless, GROUPER: "GroupBySystemStreamPartitionFactory"}
    assert refused_changes(stateless, {**stateless, "task.checkpoint.system": "local"}) == []
    assert refused_changes(stateless, changed) == []
    assert len(refused_changes(stateless, changed, stateful=True)) == 1
    assert refused_changes({}, changed, stateful=True) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"systems.local.path": "/a"}, {"systems.local.path": "/b"}),
        ({}, {"systems.local.path": "/b"}),
        ({"systems.s.samza.factory": "kafka"}, {"systems.s.samza.factory": "local"}),
        ({"task.checkpoint.system": "one"}, {"task.checkpoint.system": "other"}),
    ],
)
def test_a_job_without_state_may_not_leave_its_checkpoints_behind(
    old: dict[str, str], new: dict[str, str]
) -> None:
    stateless = {"job.name": "j", "task.inputs": "local.in"}
    (refusal,) = refused_changes({**stateless, **old}, {**stateless, **new})
    assert next(iter(new)) in refusal
    assert "job.id" in refusal


def test_a_store_may_come_and_go_as_a_whole() -> None:
    with_other = {**STATEFUL, "stores.t.factory": "grete.store.sqlite", "stores.t.key.serde": "json"}
    assert refused_changes(STATEFUL, with_other) == []
    assert refused_changes(with_other, STATEFUL) == []


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"stores.s.changelog": "local.other"},
        {"stores.s.changelog": "other.j-1-s-changelog"},
        {"stores.t.factory": "grete.store.sqlite", "stores.t.changelog": "local.of-t"},
        {"streams.a.samza.physical.name": "b"},
        {"streams.new.samza.physical.name": "b"},
        {"systems.kafka.samza.factory": "kafka", "systems.kafka.samza.fetch": "1"},
        {"job.default.system": "other"},
        {"job.changelog.system": "other"},
        {"task.max.records.per.batch": "5", "my.own": "x", "job.id": "2"},
    ],
)
def test_the_set_once_part_finds_the_same_changes_as_the_whole(change: dict[str, str]) -> None:
    old = {**STATEFUL, "streams.a.samza.offset.default": "oldest", "my.own": "y"}
    new = {**old, **change}
    assert refused_changes(set_once_part(old), set_once_part(new)) == refused_changes(old, new)
    assert refused_changes(set_once_part(new), set_once_part(old)) == refused_changes(new, old)


def test_the_set_once_part_holds_no_credentials() -> None:
    config = {
        **STATEFUL,
        "systems.k.producer.sasl.jaas.config": "secret",
        "streams.a.eventhubs.sas.token": "s",
    }
    assert set_once_part(config) == {key: STATEFUL[key] for key in ("job.name", "stores.s.factory")}


def test_a_refusal_shows_no_secret() -> None:
    old = {**STATEFUL, "stores.s.changelog": "local.a?password=hunter2secret"}
    assert "hunter2secret" not in "".join(refused_changes(old, STATEFUL))


def test_no_key_is_in_the_table_twice() -> None:
    names = [name for key in KEYS for name in (key.name, *key.renamed_from, *key.spellings)]
    assert len(names) == len(set(names))


def test_every_default_is_of_its_keys_type() -> None:
    assert [key.name for key in KEYS if key.default is not None and key.type.problem(key.default)] == []
