"""Keys of Samza 1.8.0 whose work grete leaves to Spark or does otherwise: a ported configuration has known keys.

What is declared here has no effect. The reason says who does the work instead, or which key asks grete for it.
"""

from __future__ import annotations

from typing import Any

from grete.config.key import BOOLEAN, INTEGER, LIST, MILLISECONDS, TEXT, ChangeClass, Key, Type

_CONTAINER, _QUERY = ChangeClass.RESTART_CONTAINER, ChangeClass.RESTART_QUERY
_JVM = "it sets up Samza's JVM processes"
_BATCHES = "a batch reads all inputs; see `task.max.records.per.batch`"
_PARALLEL = "executors work in parallel; use `spark.*`"
_LARGE = "a record that is too large fails the container with its size"
_SQLITE = "stores are SQLite files"
_PLANNER = "there is no planner of several jobs"


def _unused(
    name: str, type_: Type[Any], default: str | None, why: str, *, open_: bool = False, unit: str = ""
) -> Key[object]:
    change = _QUERY if name.startswith(("task.", "stores.", "streams.")) else _CONTAINER
    return Key(name, type_, default, change, "Samza's.", is_open=open_, no_effect=why, unit=unit)


TABLE: tuple[Key[object], ...] = (
    _unused("app.main.class", TEXT, None, "`grete run` is the runner"),
    _unused("app.main.args", TEXT, None, "`grete run` is the runner"),
    _unused("app.api.type", TEXT, None, "`task.class` or `app.class` says it"),
    _unused("app.processor-id-generator.class", TEXT, None, "see `processor.id`"),
    _unused("job.container.thread.pool.size", INTEGER, "0", _PARALLEL),
    _unused("job.container.task.executor.factory", TEXT, None, _PARALLEL),
    _unused("job.container.commit.thread.pool.size", INTEGER, None, _PARALLEL),
    _unused("job.container.commit.thread.pool.max.size", INTEGER, None, _PARALLEL),
    _unused("job.container.restore.thread.pool.size", INTEGER, None, _PARALLEL),
    _unused("job.container.restore.thread.pool.max.size", INTEGER, None, _PARALLEL),
    _unused("job.operator.framework.executor.enabled", BOOLEAN, "false", _PARALLEL),
    _unused("job.intermediate.stream.partitions", INTEGER, None, _PLANNER),
    _unused("job.security.manager.factory", TEXT, None, "Spark renews tokens; use `spark.kerberos.*`"),
    _unused(
        "task.callback.drain.timeout.ms", MILLISECONDS, "-1", "`grete drain` waits for the batch", unit="ms"
    ),
    _unused(
        "task.callback.watermark.timeout.ms", MILLISECONDS, "-1", "there are no watermark calls", unit="ms"
    ),
    _unused("task.watermark.%s", TEXT, None, "there are no watermark calls", open_=True),
    _unused("task.chooser.%s", TEXT, None, _BATCHES, open_=True),
    _unused("task.consumer.batch.size", INTEGER, "1", _BATCHES),
    _unused("task.max.idle.ms", MILLISECONDS, "10", _BATCHES, unit="ms"),
    _unused("task.command.class", TEXT, "org.apache.samza.job.ShellCommandBuilder", _JVM),
    _unused("task.execute", TEXT, "bin/run-container.sh", _JVM),
    _unused("task.java.home", TEXT, None, _JVM),
    _unused("task.drop.producer.errors", BOOLEAN, "false", "an output that is not written fails its batch"),
    _unused("task.async.commit", BOOLEAN, "false", "a commit is part of each batch"),
    _unused(
        "task.transactional.state.%s", TEXT, None, "state and checkpoint always commit together", open_=True
    ),
    _unused("metrics.timer.%s", TEXT, None, "see `/metrics`", open_=True),
    _unused("systems.%s.consumer.zookeeper.connect", TEXT, None, "the brokers are asked, not ZooKeeper"),
    _unused("systems.%s.producer.zookeeper.connect", TEXT, None, "the brokers are asked, not ZooKeeper"),
    _unused("systems.%s.samza.fetch.threshold", INTEGER, "10000", _BATCHES),
    _unused("systems.%s.samza.fetch.threshold.bytes", INTEGER, "-1", _BATCHES, unit="bytes"),
    _unused(
        "systems.%s.samza.delete.committed.messages", BOOLEAN, "false", "records are left to their retention"
    ),
    _unused(
        "streams.%s.samza.delete.committed.messages", BOOLEAN, "false", "records are left to their retention"
    ),
    _unused("streams.%s.samza.broadcast", BOOLEAN, "false", "see `task.broadcast.inputs`"),
    _unused(
        "streams.%s.samza.bounded",
        BOOLEAN,
        "false",
        "`grete run --until-drained` ends at the end of the inputs",
    ),
    _unused("streams.%s.samza.intermediate", BOOLEAN, "false", _PLANNER),
    _unused("stores.%s.disallow.large.messages", BOOLEAN, "false", _LARGE),
    _unused("stores.%s.drop.large.messages", BOOLEAN, "false", _LARGE),
    _unused("stores.%s.container.cache.size.bytes", INTEGER, None, _SQLITE, unit="bytes"),
    _unused("stores.%s.container.write.buffer.size.bytes", INTEGER, None, _SQLITE, unit="bytes"),
    _unused("stores.%s.clean.on.container.start", BOOLEAN, "false", "a store file that is behind is rebuilt"),
    _unused("stores.%s.accesslog.%s", TEXT, None, "there is no log of accesses", open_=True),
    _unused(
        "stores.%s.side.inputs.processor.serialized.instance",
        TEXT,
        None,
        "it is Java; see `stores.%s.side.inputs.processor.factory`",
    ),
    _unused("stores.%s.backup.factories", LIST, None, "changelogs only"),
    _unused("stores.%s.restore.factories", LIST, None, "changelogs only"),
    _unused("stores-default.rocksdb.%s", TEXT, None, _SQLITE, open_=True),
    _unused("blob.store.%s", TEXT, None, "state is backed up by changelogs only", open_=True),
)
