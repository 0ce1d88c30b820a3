"""Stores, changelogs, checkpoints, coordination and the cluster manager."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config import aliases
from grete.config.key_tables.coordinator import SYSTEM as COORDINATOR_SYSTEM
from grete.config.key_tables.streams import STORE_SIDE_INPUTS_PROCESSOR, STORE_TTL
from grete.config.key_tables.task import STATE_RETAIN
from grete.config.settings import Settings
from grete.config.settings.deploy import REQUESTS
from grete.config.settings.job import JobSettings
from grete.config.settings.streams import side_inputs
from grete.errors import ConfigError
from grete.migration.application import python_class
from grete.migration.in_code import is_in_code
from grete.migration.note import Note, Notes, NoteSection, Outcome
from grete.registry import known_plugins

_BLOB = "BlobStore"
_KAFKA_STATE = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
_KAFKA_CHECKPOINTS = "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory"
_OTHERWISE = {
    "yarn.package.path": "an archive with the application's Python modules at its top; or leave it out, and "
    "`grete deploy` packs the folder of job.application.path",
    "task.opts": "spark.executor.extraJavaOptions (memory is spark.executor.memory)",
    "job.container.thread.pool.size": "spark.executor.cores, and spark.executor.instances",
}


def stores(config: Mapping[str, str]) -> Notes:
    """Each store, what it is rebuilt from, and what of its settings is gone."""
    settings = Settings.of(config)
    job = JobSettings(config).written_id
    unknown = set() if is_in_code(config) else _stores_without_factory(config)
    for store in settings.store_names:
        prefix = f"stores.{store}."
        if store in unknown:
            yield from _ignored(config, prefix)
            continue
        if not config.get(f"{prefix}changelog", "").strip():
            own = settings.store(store).changelog_stream(job)
            yield Note(
                NoteSection.STORES,
                f"{prefix}changelog",
                Outcome.MAPPED,
                f"not set: Samza's store has no changelog; grete keeps one, {own}",
                changes={f"{prefix}changelog": own},
            )
        else:
            yield Note(
                NoteSection.STORES,
                f"{prefix}changelog",
                Outcome.AS_IS,
                "each task's store is rebuilt from the partition that the coordinator stream gives it, up to where "
                "Samza's checkpoint says",
            )
        yield from _filled_otherwise(config, prefix)
        yield from _expiring(config, prefix)
    for key in ("stores.backup.factories", "stores.restore.factories"):
        yield from _back_end(config, key)
    yield from _on_the_way_back(config)


def _stores_without_factory(config: Mapping[str, str]) -> set[str]:
    """Names with settings of a store that Samza knows no store of, since nothing says what makes one."""
    makers = ("factory", "side.inputs.processor.factory")
    names = Settings.of(config).store_names
    return {store for store in names if not any(f"stores.{store}.{maker}" in config for maker in makers)}


def _ignored(config: Mapping[str, str], prefix: str) -> Notes:
    says = f"Samza ignores it too: {prefix}factory is not set, so there is no such store"
    for key in config:
        if key.startswith(prefix):
            yield Note(NoteSection.STORES, key, Outcome.NO_EFFECT, says, changes={key: None})


def _filled_otherwise(config: Mapping[str, str], prefix: str) -> Notes:
    for name in ("backup.factories", "restore.factories"):
        yield from _back_end(config, prefix + name)
    yield from _side_inputs(config, prefix)


def _side_inputs(config: Mapping[str, str], prefix: str) -> Notes:
    store = prefix.split(".")[1]
    try:
        streams = side_inputs(config).get(store, ())
    except ConfigError:
        return  # validation says what is wrong
    if not streams:
        return
    key = f"{prefix}side.inputs"
    yield Note(
        NoteSection.STORES,
        key,
        Outcome.AS_IS,
        "the store is filled from the oldest message on; where it stands in the stream is in checkpoints",
    )
    given = (STORE_SIDE_INPUTS_PROCESSOR.named(store), f"{key}.processor.serialized.instance")
    for name in given:
        java = config.get(name, "")
        if java and ":" not in java:
            made = python_class(java) if name == given[0] else "side_inputs:" + store.title().replace("-", "")
            yield Note(
                NoteSection.STORES,
                name,
                Outcome.PORT,
                "what makes entries of the messages is Java; write it as a grete.SideInputsProcessor",
                f"{given[0]}=module:Class",
                {name: None, given[0]: made},
            )


def _back_end(config: Mapping[str, str], key: str) -> Notes:
    value = config.get(key, "")
    if _BLOB in value:
        yield Note(
            NoteSection.STORES,
            key,
            Outcome.BLOCKS,
            "the state is in a blob store, which grete does not read",
            f"run the Samza job once with {key}={value},{_KAFKA_STATE} and a changelog for the store, until it has "
            "committed; then remove the blob store",
        )
    elif value:
        yield Note(NoteSection.STORES, key, Outcome.NO_EFFECT, "state is backed up by changelogs only")


def _expiring(config: Mapping[str, str], prefix: str) -> Notes:
    key = f"{prefix}rocksdb.ttl.ms"
    if STORE_TTL.type.problem(config.get(key, "")) is not None:
        return  # not set, or validation says what is wrong
    store = Settings.of(config).store(prefix.split(".")[1])
    if not store.is_expiring:
        yield Note(NoteSection.STORES, key, Outcome.NO_EFFECT, "entries stay, as in RocksDB with 0 or less")
        return
    yield Note(
        NoteSection.STORES,
        key,
        Outcome.AS_IS,
        "an entry is gone as soon as it is older, where RocksDB may return it until it compacts; a store that is "
        "rebuilt goes by the times of the changelog's records, where in Samza the time begins anew",
    )


def checkpoints(config: Mapping[str, str]) -> Notes:
    """Where checkpoints are, and in which version."""
    key = "task.checkpoint.factory"
    job = JobSettings(config).written_id
    topic = f"__samza_checkpoint_ver_1_for_{str(job.name).replace('_', '-')}_{str(job.id).replace('_', '-')}"
    value = config.get(key, "")
    kind = aliases.canonical(aliases.CHECKPOINTS, value)
    if not value:
        yield Note(
            NoteSection.CHECKPOINTS,
            key,
            Outcome.MAPPED,
            f"not set: Samza keeps no checkpoints; grete does, in {topic}",
            changes={key: _KAFKA_CHECKPOINTS},
        )
    elif kind == "grete.checkpoint.log":
        yield Note(
            NoteSection.CHECKPOINTS,
            key,
            Outcome.AS_IS,
            f"checkpoints of the topic {topic} are continued, and go there",
        )
    elif kind == "grete.checkpoint.azure-table":
        yield Note(
            NoteSection.CHECKPOINTS,
            key,
            Outcome.AS_IS,
            "checkpoints of the table are continued, and go there as copies of those of the checkpoint log",
        )
    elif kind not in aliases.known_names(aliases.CHECKPOINTS):
        yield Note(
            NoteSection.CHECKPOINTS,
            key,
            Outcome.BLOCKS,
            "this store of checkpoints cannot be read",
            "write them to a file with Samza's checkpoint tool, keep them in the checkpoint log from then on, and "
            "take the file in with grete checkpoint overwrite",
            {key: _KAFKA_CHECKPOINTS},
        )
    yield from _versions(config)
    yield from _elsewhere(config)


def _elsewhere(config: Mapping[str, str]) -> Notes:
    """A transaction is one cluster's, so checkpoints and changelogs are looked for where the inputs are."""
    settings = Settings.of(config)
    if not config.get("task.inputs", "").strip():
        return
    home = log_system(config)
    places = {"task.checkpoint.system": config.get("task.checkpoint.system") or _coordinator_system(config)}
    places |= {
        f"stores.{s}.changelog": settings.store(s).changelog_system or home for s in settings.store_names
    }
    for key, system in places.items():
        if (
            system in (home, "")
            or not settings.system(home).is_known
            or settings.system(system).brokers == settings.system(home).brokers
        ):
            continue
        yield Note(
            NoteSection.CHECKPOINTS if key.startswith("task.") else NoteSection.STORES,
            key,
            Outcome.BLOCKS,
            f"the topic is on the cluster of {system!r}; outputs, state and checkpoints commit in one transaction, "
            f"on the cluster of the inputs, {home!r}, and are looked for there",
            f"copy the topic to the cluster of {home!r} with its partitions and keys while the job stands still",
        )


def log_system(config: Mapping[str, str]) -> str:
    """Where grete looks for checkpoints and changelogs: with the inputs, or beside them if they are on Event Hubs."""
    settings = Settings.of(config)
    home = settings.task.commit_system
    return settings.system(home).commits_beside or home


def _coordinator_system(config: Mapping[str, str]) -> str:
    try:
        return Settings.of(config).coordinator.system
    except ConfigError:
        return ""  # several and none named: validation says so


def _versions(config: Mapping[str, str]) -> Notes:
    key = "task.checkpoint.write.versions"
    if key in config:
        yield Note(
            NoteSection.CHECKPOINTS,
            key,
            Outcome.NO_EFFECT,
            "the last one of either is continued, both are written",
        )


def _on_the_way_back(config: Mapping[str, str]) -> Notes:
    settings = Settings.of(config)
    if settings.store_names and not settings.task.retains_state:
        yield Note(
            NoteSection.STORES,
            STATE_RETAIN.name,
            Outcome.AS_IS,
            "a changelog of which Samza's checkpoint says nothing is emptied",
            "for the way back to Samza set it to true there: grete's checkpoints name no changelogs, which hold "
            "nothing but what is committed",
        )


def coordination(config: Mapping[str, str]) -> Notes:
    """Leader election, and how partitions become tasks."""
    key = "job.coordinator.factory"
    kind = aliases.canonical(aliases.COORDINATION, config.get(key, ""))
    if key not in config:
        yield Note(
            NoteSection.COORDINATION,
            key,
            Outcome.AS_IS,
            "not set: coordinators are elected on the system of the coordinator stream",
        )
    elif kind == "zookeeper":
        yield Note(
            NoteSection.COORDINATION,
            key,
            Outcome.AS_IS,
            "coordinators are elected on ZooKeeper, below /grete, apart from Samza's own nodes",
            "install the extra: pip install 'grete[zookeeper]'",
        )
    elif kind == "passthrough" or kind not in aliases.known_names(aliases.COORDINATION):
        yield Note(
            NoteSection.COORDINATION,
            key,
            Outcome.MAPPED,
            "coordinators are elected on the system of the coordinator stream; none runs without one",
            changes={key: None},
        )
    elif kind == "azure":
        yield Note(
            NoteSection.COORDINATION,
            key,
            Outcome.AS_IS,
            "coordinators are elected by leases of blobs in the account of azure.storage.connect; the coordinator "
            "stream is where job.coordinator.system says",
        )
    yield from _place_of_the_stream(config)
    yield from _own_classes(config)
    count = config.get("job.container.count", config.get("yarn.container.count", "1")).strip()
    if count not in ("", "1"):
        yield Note(
            NoteSection.COORDINATION,
            "job.container.count",
            Outcome.AS_IS,
            f"{count} containers are {count} Spark applications; one that scales out by executors needs less memory",
        )


def _place_of_the_stream(config: Mapping[str, str]) -> Notes:
    """Samza before 0.9 had no coordinator stream, and its configurations do not say where one is."""
    settings = Settings.of(config)
    able = [name for name in settings.system_names if settings.system(name).capabilities.kafka_topics]
    if not _coordinator_system(config) and len(able) == 1:
        says = "not set: of the systems, one can keep the coordinator stream"
        changes: dict[str, str | None] = {COORDINATOR_SYSTEM.name: able[0]}
        yield Note(NoteSection.COORDINATION, COORDINATOR_SYSTEM.name, Outcome.MAPPED, says, changes=changes)


_GROUPERS = {
    "job.systemstreampartition.grouper.factory": aliases.SSP_GROUPERS,
    "task.name.grouper.factory": aliases.TASK_GROUPERS,
}


def _own_classes(config: Mapping[str, str]) -> Notes:
    for key, group in _GROUPERS.items():
        known = (*aliases.known_names(group), *known_plugins(group))
        if key in config and aliases.canonical(group, config[key]) not in known:
            yield Note(
                NoteSection.COORDINATION,
                key,
                Outcome.BLOCKS,
                f"{config[key]} is Java",
                f"write it as a plug-in, an entry point of the group {group}, or use one of {', '.join(known)}; "
                "another grouper makes other tasks, whose state and checkpoints are other ones",
            )
    for key, value in config.items():
        if key.startswith("job.config.rewriter.") and key.endswith(".class") and key.count(".") == 4:
            name = aliases.canonical(aliases.REWRITERS, value)
            if name not in aliases.known_names(aliases.REWRITERS) and ":" not in value:
                yield Note(
                    NoteSection.COORDINATION,
                    key,
                    Outcome.PORT,
                    f"{value} is Java; write it as a class with rewrite(name, config)",
                    f"{key}=module:Class",
                    {key: "rewriters:" + value.rpartition(".")[2]},
                )


def cluster(config: Mapping[str, str]) -> Notes:
    """Requests to YARN for resources, as Spark's settings."""
    for key, words in _OTHERWISE.items():
        if key in config:
            yield Note(NoteSection.CLUSTER, key, Outcome.NO_EFFECT, "Spark asks the cluster manager", words)
    for asked, words in REQUESTS.items():
        for name in (asked.name, *asked.renamed_from):
            if name in config:
                says = f"asked of the cluster manager as {words.format(config[name])}, unless that is set"
                yield Note(NoteSection.CLUSTER, name, Outcome.AS_IS, says)
