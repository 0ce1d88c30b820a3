"""The table of configuration keys: type, default, meaning, and what a change of it touches.

`docs/configuration.md` is made from this table by `python -m grete.config.document`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class ChangeClass(StrEnum):
    """What a change of a key makes necessary."""

    LIVE = "live"
    RESTART_QUERY = "restart-query"
    RESTART_CONTAINER = "restart-container"
    SET_ONCE = "set-once"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Type:
    """A value's type: a name for the documentation and a check."""

    name: str
    pattern: str
    choices: tuple[str, ...] = ()

    def problem(self, value: str) -> str | None:
        """What is wrong with a value, None when nothing is."""
        if self.choices:
            return None if value in self.choices else f"it is one of {', '.join(self.choices)}"
        return None if re.fullmatch(self.pattern, value, re.DOTALL) else f"it is not {self.name}"


TEXT = Type("text", r".*")
INTEGER = Type("a whole number", r"-?\d{1,18}")
COUNT = Type("a whole number of one or more", r"0*[1-9]\d{0,17}")
MILLISECONDS = Type("a number of milliseconds", r"-?\d{1,18}")
BOOLEAN = Type("true or false", r"(?i)true|false", ())


def one_of(*choices: str) -> Type:
    """One of a few words."""
    return Type("one of " + ", ".join(choices), "", choices)


@dataclass(frozen=True, slots=True)
class Key:
    """A key or, with `%s`, a family of keys."""

    name: str
    type: Type
    default: str | None
    change: ChangeClass
    doc: str
    deprecated: tuple[str, ...] = ()


_Q, _C, _S, _L = (
    ChangeClass.RESTART_QUERY,
    ChangeClass.RESTART_CONTAINER,
    ChangeClass.SET_ONCE,
    ChangeClass.LIVE,
)

KEYS: tuple[Key, ...] = (
    Key("job.name", TEXT, None, _S, "The job's name; required."),
    Key("job.id", TEXT, "1", _S, "Tells apart several runs of the same job, each with its own state."),
    Key(
        "job.container.count",
        COUNT,
        "1",
        _C,
        "Containers, each a Spark application.",
        ("yarn.container.count",),
    ),
    Key("job.launcher", one_of("process", "thread"), "process", _C, "How containers are started."),
    Key("job.application.path", TEXT, None, _C, "Folder of the application's Python modules."),
    Key("job.state.dir", TEXT, "${GRETE_HOME}/jobs", _C, "Folder for lineages, store files, logs, tokens."),
    Key("job.lineage.state", one_of("keep", "discard"), "keep", _Q, "Whether Spark's state may be given up."),
    Key("job.http.host", TEXT, "127.0.0.1", _C, "Address of the coordinator's HTTP server; loopback only."),
    Key("job.http.port", INTEGER, "0", _C, "Its port; 0 takes a free one."),
    Key("job.http.auth", one_of("token", "none"), "token", _C, "Whether requests need the bearer token."),
    Key("job.coordinator.system", TEXT, "local", _S, "The system that holds the coordinator stream."),
    Key(
        "job.coordinator.lease.ttl.ms",
        COUNT,
        "15000",
        _C,
        "A holder that is silent so long can be succeeded.",
    ),
    Key(
        "job.systemstreampartition.grouper.factory",
        TEXT,
        "GroupByPartitionFactory",
        _S,
        "How SSPs become tasks.",
    ),
    Key("job.elasticity.factor", INTEGER, "1", _S, "Samza's elasticity; only 1 is supported."),
    Key("job.config.rewriters", TEXT, None, _C, "Rewriters applied in this order, once, at submit."),
    Key("job.config.rewriter.%s.class", TEXT, None, _C, "A rewriter as module:Class."),
    Key("job.default.system", TEXT, "local", _C, "The system meant where none is named."),
    Key("app.class", TEXT, None, _Q, "A grete.DataFramePipeline as module:Class."),
    Key("task.class", TEXT, None, _Q, "A grete.StreamTask as module:Class."),
    Key("task.inputs", TEXT, None, _C, "Input streams, system.stream separated by commas; required."),
    Key(
        "task.broadcast.inputs",
        TEXT,
        None,
        _C,
        "system.stream#partition or #[first-last]: read by every task.",
    ),
    Key("task.outputs", TEXT, None, _Q, "Output streams to create when they do not exist."),
    Key("task.window.ms", MILLISECONDS, "-1", _Q, "How often window() is called; -1 never."),
    Key("task.max.records.per.batch", COUNT, "200000", _Q, "Most input records of a micro-batch."),
    Key(
        "task.trigger.interval.ms",
        MILLISECONDS,
        "0",
        _Q,
        "Time between micro-batches; 0 is as soon as possible.",
    ),
    Key("task.shutdown.ms", MILLISECONDS, "30000", _L, "Time a container has for a graceful stop."),
    Key(
        "task.poison.policy", one_of("fail", "dead-letter"), "fail", _Q, "What a message that fails leads to."
    ),
    Key("task.poison.dead-letter.stream", TEXT, None, _Q, "Where such messages go."),
    Key("task.checkpoint.factory", TEXT, "grete.checkpoint.log", _S, "Where checkpoints are kept."),
    Key(
        "streams.%s.samza.offset.default",
        one_of("oldest", "newest", "upcoming"),
        None,
        _L,
        "Start without one.",
    ),
    Key("streams.%s.samza.reset.offset", BOOLEAN, "false", _Q, "Ignore the checkpoint of this stream."),
    Key("streams.%s.samza.bootstrap", BOOLEAN, "false", _Q, "Read this stream to its end before the others."),
    Key("streams.%s.samza.partitions", COUNT, None, _S, "Partitions of an output that is created."),
    Key("streams.%s.samza.key.serde", TEXT, None, _Q, "Serde of the stream's keys."),
    Key("streams.%s.samza.msg.serde", TEXT, None, _Q, "Serde of the stream's messages."),
    Key("systems.%s.samza.factory", TEXT, None, _S, "The kind of system; `local` is the embedded one."),
    Key("systems.%s.path", TEXT, "${GRETE_HOME}/local", _S, "The embedded system's folder."),
    Key(
        "systems.%s.samza.offset.default", one_of("oldest", "newest", "upcoming"), "upcoming", _L, "As above."
    ),
    Key("systems.%s.samza.key.serde", TEXT, "bytes", _Q, "Serde of keys of the system's streams."),
    Key("systems.%s.samza.msg.serde", TEXT, "bytes", _Q, "Serde of messages of the system's streams."),
    Key("stores.%s.factory", TEXT, None, _S, "Declares a store of every task."),
    Key(
        "stores.%s.changelog",
        TEXT,
        None,
        _S,
        "The store's changelog; `<job>-<id>-<store>-changelog` by default.",
    ),
    Key("stores.%s.key.serde", TEXT, "string", _S, "Serde of the store's keys."),
    Key("stores.%s.msg.serde", TEXT, "json", _S, "Serde of the store's values."),
    Key("serializers.registry.%s.class", TEXT, None, _Q, "A serde by name: module:Class or a built-in one."),
    Key(
        "cluster-manager.container.retry.count",
        INTEGER,
        "8",
        _L,
        "Failures within the window before giving up.",
    ),
    Key("cluster-manager.container.retry.window.ms", MILLISECONDS, "300000", _L, "The window."),
    Key(
        "cluster-manager.container.fail.job.after.retries", BOOLEAN, "true", _L, "Whether the job fails then."
    ),
)


@cache
def _patterns() -> list[tuple[re.Pattern[str], Key]]:
    return [
        (re.compile(re.escape(key.name).replace("%s", "(?P<name>.+)")), key)
        for key in KEYS
        if "%s" in key.name
    ]


@cache
def _exact() -> dict[str, Key]:
    found = {key.name: key for key in KEYS}
    return found | {old: key for key in KEYS for old in key.deprecated}


def find_key(name: str) -> Key | None:
    """The table's row for a key, None when it has none."""
    key = _exact().get(name)
    if key is not None:
        return key
    return next((row for pattern, row in _patterns() if pattern.fullmatch(name)), None)
