"""The application: Java code has to be written again; what each of Samza's methods is called in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping

from grete.config import aliases
from grete.config.key import CLASS
from grete.config.key_tables import job, task
from grete.config.settings.metrics import SNAPSHOT, reporter_names
from grete.config.values import valid_value_of
from grete.migration.in_code import inputs_not_known
from grete.migration.note import Note, Notes, NoteSection, Outcome

METHODS: tuple[tuple[str, str], ...] = (
    ("class Task implements StreamTask, InitableTask", "class Task(grete.StreamTask)"),
    ("init(Context context)", "init(self, context)"),
    ("process(envelope, collector, coordinator)", "process(self, envelope, collector, coordinator)"),
    ("class Task implements AsyncStreamTask", "class Task(grete.AsyncStreamTask)"),
    ("processAsync(envelope, collector, coordinator, callback)", "async def process(...), which returns when done"),
    ("WindowableTask.window(collector, coordinator)", "window(self, collector, coordinator)"),
    ("ClosableTask.close()", "close(self)"),
    ("envelope.getKey(), getMessage(), getOffset()", "envelope.key, .message, .offset"),
    ("envelope.getSystemStreamPartition(), getEventTime()", ".system_stream_partition, .timestamp_ms"),
    ('collector.send(new OutgoingMessageEnvelope(new SystemStream("kafka", "out"), key, message))',
     'collector.send("kafka.out", message, key=key)'),
    ("headers of Kafka's records, through a client of one's own", "envelope.headers; send(..., headers=...)"),
    ("OutgoingMessageEnvelope(stream, partitionKey, key, message)", "send(..., partition=number of the partition)"),
    ("coordinator.commit(RequestScope)", "coordinator.commit(); every batch commits"),
    ("coordinator.shutdown(RequestScope.CURRENT_TASK)", "coordinator.shutdown()"),
    ("coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)", "coordinator.shutdown(all_tasks=True)"),
    ('context.getTaskContext().getStore("s")', 'context.store("s")'),
    ("getTaskModel().getTaskName(), getSystemStreamPartitions()", "context.task_name, .system_stream_partitions"),
    ("context.getJobContext().getConfig()", "context.config"),
    ("getTaskMetricsRegistry().newCounter(group, name)", "context.metrics.counter(name, group=group); gauge, timer"),
    ("getCallbackScheduler().scheduleCallback(key, timestamp, callback)", "context.scheduler.schedule(key, at_ms)"),
    ("ScheduledCallback.onCallback(key, collector, coordinator)", "on_timer(self, key, collector, coordinator)"),
    ("EndOfStreamListenerTask.onEndOfStream(collector, coordinator)", "on_end_of_stream(self, collector, ...)"),
    ("fields of the class that count between two calls", "the same; what a failure must not lose, in a store"),
    ("KeyValueStore get, put, delete, getAll, range, all", "get, put, delete, get_all, range, all"),
    ("KeyValueStore.putAll, deleteAll, flush", "put and delete in a loop; the commit is the flush"),
    ("StreamApplication.describe: map, filter, window, ...", "each as a task and as a pipeline: docs/operators.md"),
)  # fmt: skip
"""(Samza's, grete's)."""
_PACKAGE_END = re.compile(r"([A-Za-z_$][\w$]*)\Z")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def application(config: Mapping[str, str]) -> Notes:
    """The code, the inputs that only it names, the launcher."""
    yield from _code(config)
    yield from inputs_not_known(config)
    yield from _launcher(config)
    yield from _poison(config)
    yield from _reporters(config)
    for name in ("app.name", "app.id"):
        if name in config:
            yield Note(NoteSection.APPLICATION, name, Outcome.AS_IS, f"names the job, as job.{name[4:]} does")


def _reporters(config: Mapping[str, str]) -> Notes:
    for name, kind in reporter_names(config).items():
        if kind != SNAPSHOT:
            says = "`/metrics` has what the reporter shows"
            yield Note(NoteSection.METRICS, task.METRICS_CLASS.named(name), Outcome.NO_EFFECT, says)


def _code(config: Mapping[str, str]) -> Notes:
    for key in ("task.class", "app.class"):
        value = config.get(key, "").strip()
        if not value:
            continue
        if CLASS.problem(value) is None:
            yield Note(NoteSection.APPLICATION, key, Outcome.AS_IS, "is written in Python")
            continue
        ported = python_class(value)
        kind = "grete.StreamTask"
        if key == "app.class":
            kind += " (task.class) or a grete.DataFramePipeline (app.class)"
        changes: dict[str, str | None] = {key: None, "task.class": ported}
        yield Note(
            NoteSection.APPLICATION,
            key,
            Outcome.PORT,
            f"{value} is Java; write it as a {kind}",
            "set job.application.path to the folder of its module",
            changes if key == "task.class" or "task.class" not in config else {key: None},
        )
    if not config.get("task.class", "").strip() and not config.get("app.class", "").strip():
        yield Note(
            NoteSection.APPLICATION,
            "task.class",
            Outcome.BLOCKS,
            "no application is named" + (": app.main.class builds it" if "app.main.class" in config else ""),
            "write the application as a grete.StreamTask and name it: task.class=module:Class",
        )


def python_class(java: str) -> str:
    """Where the ported class is looked for: `com.example.PageViews` -> `page_views:PageViews`."""
    match = _PACKAGE_END.search(java)
    name = match[1].replace("$", "_") if match else "Task"
    return f"{_HUMP.sub('_', name).lower()}:{name}"


def _launcher(config: Mapping[str, str]) -> Notes:
    key = job.FACTORY.name
    if key not in config:
        return
    launcher = aliases.canonical(aliases.LAUNCHERS, config[key])
    if job.LAUNCHER.type.problem(launcher) is None:
        yield Note(NoteSection.APPLICATION, key, Outcome.AS_IS, f"job.launcher={launcher}")
    elif launcher == "spark-submit":
        yield Note(
            NoteSection.APPLICATION,
            key,
            Outcome.MAPPED,
            "containers are Spark applications whose drivers run beside the coordinator; executors run where "
            "spark.master says (yarn, k8s://..., spark://...; local[*] when it is not set)",
            changes={job.LAUNCHER.name: "process"},
        )
    else:
        yield Note(
            NoteSection.APPLICATION,
            key,
            Outcome.MAPPED,
            f"{config[key]} is no factory of Samza's; containers are processes of this machine",
            changes={key: None, job.LAUNCHER.name: "process"},
        )


def _poison(config: Mapping[str, str]) -> Notes:
    """Samza drops what it cannot process; a job that did so for years must not die of the first one here."""
    keys = (task.DROP_DESERIALIZATION_ERRORS, task.DROP_SERIALIZATION_ERRORS)
    note = "what Samza dropped is put aside as a dead letter"
    where = f"{task.DEAD_LETTERS.name} names another stream than the job's own"
    for key in keys:
        if valid_value_of(config, key) and key.name in config:
            yield Note(NoteSection.APPLICATION, key.name, Outcome.AS_IS, note, where)
    name = task.IGNORED_EXCEPTIONS.name
    ignored = valid_value_of(config, task.IGNORED_EXCEPTIONS) or ()
    if "*" in ignored:
        yield Note(NoteSection.APPLICATION, name, Outcome.AS_IS, note, where)
    elif ignored:
        says = "these are put aside as dead letters, by the names of Python's classes: Java's never come"
        yield Note(NoteSection.APPLICATION, name, Outcome.PORT, says, f"{name}=ValueError,my_job.errors.Odd")
