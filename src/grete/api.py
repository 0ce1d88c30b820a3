"""The interface for applications: small, typed, stable. It imports neither pyspark nor any client library.

An application is one of:

- a `StreamTask`: one instance per task, called once per message, with stores that survive anything
  (Samza's StreamTask; named in `task.class`);
- a `DataFramePipeline`: a function from streaming DataFrames to a DataFrame, all of Spark SQL
  (named in `app.class`).

Both are named in configuration as `module:Class` or `module.Class`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.streams import Headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Action = Literal["count", "drop", "dead-letter", "fail"]
"""What happens to what is not as it is expected: see `TaskContext.expect` and `PipelineContext.expect`."""


class IncomingMessageEnvelope(NamedTuple):
    """A message as a task gets it. `key` and `message` have passed the stream's serdes; `message` None is a null.

    `offset` is the system's own form as a string; `timestamp_ms` is the time the system stored with it; `headers`
    are those of the record, in their order, as they are.
    """

    system_stream_partition: SystemStreamPartition
    offset: str
    key: Any
    message: Any
    timestamp_ms: int
    headers: Headers = ()


class MessageCollector(Protocol):
    """Takes a task's outputs. Nothing is visible to readers before the commit."""

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]] | None = None,
    ) -> None:
        """Send `message` to `system.stream`.

        The partition is `partition` if given, else decided by the serialised key, else by the task. Key and
        message go through the serdes configured for the stream; `timestamp_ms` defaults to the input's. `headers`
        are written as they are, texts as UTF-8; those of an input go on with `headers=envelope.headers`.

        A stream of another system than the inputs', which `task.outputs` has to name, gets the message before the
        commit, and again when that fails.

        Raises:
            StreamNotFound: the stream does not exist and is not declared in `task.outputs`.
        """


class TaskCoordinator(Protocol):
    """How a task steers its own progress (Samza's TaskCoordinator, S2-11)."""

    def commit(self) -> None:
        """Commit before this task gets its next message, whatever `task.commit.ms` says."""

    def shutdown(self, *, all_tasks: bool = False) -> None:
        """Give this task no message after this one; with `all_tasks`, end the container with the next commits."""


class KeyValueStore(Protocol):
    """A task's store: what it puts is durable, together with the checkpoint, with the next commit.

    Keys and values go through the store's serdes. Iteration is in the order of the serialised keys. With
    `stores.<name>.rocksdb.ttl.ms` an entry whose last put is longer ago is not there.
    """

    def get(self, key: Any) -> Any:
        """The value, or None when there is none."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value. None deletes the key, as in Samza."""

    def delete(self, key: Any) -> None:
        """Remove the key; a key that is not there is fine."""

    def get_all(self, keys: Sequence[Any]) -> dict[Any, Any]:
        """The values of those keys that have one."""

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Entries with first <= key < last. Changes during the iteration are not seen by it."""

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Every entry. Changes during the iteration are not seen by it."""


class SideInputsProcessor:
    """Makes entries of a store from messages of its side inputs; `stores.<name>.side.inputs.processor.factory`.

    Made without arguments, one for each task and store; called from one thread, as the task is. This one, without a
    class of the application's, puts each message under its key, and deletes the key when the message is None.
    """

    def init(self, context: TaskContext) -> None:
        """Called once before the first message, and before the `init` of the task."""

    def process(self, envelope: IncomingMessageEnvelope, store: KeyValueStore) -> Iterable[tuple[Any, Any]]:
        """The entries to put, in order: one with the value None is deleted, one with the key None is passed over.

        `store` is as the messages before left it. An exception is as one of the task's `process`.
        """
        return [(envelope.key, envelope.message)]


class Counter(Protocol):
    """A number that goes up and down (Samza's Counter)."""

    @property
    def count(self) -> int:
        """Its value in this instance of the task, which begins with 0."""

    def inc(self, n: int = 1) -> int:
        """Add; returns the new value."""

    def dec(self, n: int = 1) -> int:
        """Subtract; returns the new value."""

    def set(self, n: int) -> None:
        """Set the value."""

    def clear(self) -> None:
        """Set it to 0."""


class Gauge(Protocol):
    """A value that is set (Samza's Gauge)."""

    @property
    def value(self) -> int | float | str | bool | None:
        """The value that was set last."""

    def set(self, value: int | float | str | bool | None) -> None:
        """Set the value.

        Raises:
            TypeError: it is neither a number nor a text nor None.
        """


class Timer(Protocol):
    """Durations, of which readers get the average of five minutes (Samza's Timer)."""

    def update(self, duration: float) -> None:
        """Add a duration, in any unit; Samza's own timers are in nanoseconds. One that is not above 0 is left out."""


class MetricsRegistry(Protocol):
    """A task's metrics (Samza's MetricsRegistry): in `/metrics` and in the streams of `metrics.reporters`.

    They are summed up in the container and begin anew with it; they take no part in commits, and what an attempt that
    failed has counted is lost. The same group and name are the same metric, whichever instance asks.
    """

    def counter(self, name: str, *, group: str = ...) -> Counter:
        """The counter of this name.

        Raises:
            IllegalStateError: it is another kind of metric already, the name is none, or the task has 1,000 metrics.
        """

    def gauge(self, name: str, value: int | float | str | bool | None = ..., *, group: str = ...) -> Gauge:
        """The gauge of this name, `value` (0) at first; Prometheus gets numbers only. Raises as `counter`."""

    def timer(self, name: str, *, group: str = ...) -> Timer:
        """The timer of this name. Raises as `counter`."""


class Scheduler(Protocol):
    """A task's timers (Samza's CallbackScheduler): each calls `StreamTask.on_timer` once, when its time has come.

    They are not durable, as in Samza: a task that goes on as another instance, after a restart or a failure, has to
    schedule its timers again, in `init`, from what it keeps in a store.
    """

    def schedule(self, key: Hashable, at_ms: int) -> None:
        """Let `on_timer` be called with `key` at `at_ms`, in milliseconds since 1970, or soon when that has passed.

        A timer of the same key is replaced.

        Raises:
            IllegalStateError: the task has no `on_timer`.
        """

    def delete(self, key: Hashable) -> None:
        """Let the timer of the key be; one that is not there is fine."""


class TaskContext(Protocol):
    """A task's own context. Valid from `init` to `close`."""

    @property
    def task_name(self) -> TaskName:
        """The task's name, e.g. "Partition 3"."""

    @property
    def system_stream_partitions(self) -> Sequence[SystemStreamPartition]:
        """The task's inputs, sorted."""

    @property
    def config(self) -> Mapping[str, str]:
        """The job's configuration. Of keys of the application's own, `${env:NAME}` and `${file:/path}` are resolved
        when they are asked for, in this process; a container has the variables that begin with `GRETE_`.

        Raises:
            ConfigError: from asking for a key that refers to nothing.
        """

    @property
    def metrics(self) -> MetricsRegistry:
        """The task's metrics."""

    @property
    def scheduler(self) -> Scheduler:
        """The task's timers."""

    def expect(self, name: str, is_met: bool, action: Action = "count") -> bool:
        """Say whether a message is as it is expected to be, when it was found to be so or not, and count both.

        Returns whether to go on with it: False when it is not so and `action` is "drop". With "dead-letter" the
        message is undone and set aside, which `task.poison.policy=dead-letter` makes possible; with "fail" its batch
        fails, whatever that policy is. With "count" nothing else happens.

            if not context.expect("amount is positive", message["amount"] > 0, "drop"):
                return

        Raises:
            ConfigError: there is no such action.
        """

    def store(self, name: str) -> KeyValueStore:
        """The task's own store `name`, declared by `stores.<name>.*`.

        Raises:
            ConfigError: no such store is configured.
        """


Done = Awaitable[None] | None
"""Nothing; an AsyncStreamTask's methods may be `async def`."""


@dataclass(frozen=True, slots=True)
class Serdes:
    """Names of the serdes of keys and of messages; None leaves it to the configuration."""

    key: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a task reads, writes and keeps. Streams are `system.stream`, serdes are by name."""

    inputs: Mapping[str, Serdes] | Sequence[str] = ()
    outputs: Mapping[str, Serdes] | Sequence[str] = ()
    stores: Mapping[str, Serdes] | Sequence[str] = ()
    serdes: Mapping[str, type[Serde]] = field(default_factory=dict)
    """The application's own, by the names under which the others use them."""


class SystemStreamPartitionGrouper(Protocol):
    """Divides what a job reads into tasks; named as `module:Class` in `job.systemstreampartition.grouper.factory`.

    Made without arguments for each call. Equal SSPs and configurations have to give equal tasks at any time: a task's
    name leads to its checkpoint and its state.
    """

    def group(
        self, ssps: frozenset[SystemStreamPartition], config: Mapping[str, str]
    ) -> Mapping[str, Iterable[SystemStreamPartition]]:
        """The SSPs of each task by its name, each in one at least. Those of `task.broadcast.inputs` are not given."""


class StreamTask(ABC):
    """One instance per task. Never called from two threads, never for two messages at once.

    An instance lives until its container stops, gets another assignment or configuration, or is lost with its
    executor or Python worker; then the task goes on as another one. So fields may hold clients, caches and what a
    window gathers, as in Samza, and nothing that must survive a failure: that belongs into a store.
    """

    @classmethod
    def describe(cls, config: Mapping[str, str]) -> Description:
        """What tasks of the class read, write and keep, where no `task.inputs` are configured (Samza's describe).

        Called once, when the job is submitted, in the application's environment. What it says becomes part of the
        configuration, whose own keys win; values that refer to secrets are the references.
        """
        return Description()

    def init(self, context: TaskContext) -> Done:  # noqa: B027 - optional hook, not abstract
        """Called once before the first message."""

    @abstractmethod
    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> Done:
        """Called for every message, in offset order within an SSP.

        An exception fails the share, naming task, SSP and offset, or with `task.poison.policy=dead-letter`
        undoes what the message did and moves it to the dead-letter stream.
        """

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> Done:  # noqa: B027
        """Called every `task.window.ms`, between two messages, also when there was none."""

    def on_timer(  # noqa: B027
        self, key: Any, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> Done:
        """Called when a timer of the task is due, between messages; what it sends has the time of now.

        A task with this method is initialised when its container starts, else with its first message.
        """

    def on_end_of_stream(self, collector: MessageCollector, coordinator: TaskCoordinator) -> Done:  # noqa: B027
        """Called once when all inputs of the task have ended (Samza's EndOfStreamListenerTask).

        Inputs end where they ended when a job was asked to drain, or started with `--until-drained`. What the call
        sends and puts is committed before the job ends; a job that is run so once more is called once more.
        """

    def close(self) -> Done:  # noqa: B027 - optional hook
        """Called when the instance is given up. Not called after a crash."""


class AsyncStreamTask(StreamTask):
    """A StreamTask whose `process` is `async def`; `task.max.concurrency` messages of a task are in progress at once.

    With 1, the default, a task's messages are processed one after the other, in order; with more they begin in order
    within an SSP, and may end in any. A commit waits for all that have begun, each at most
    `task.callback.timeout.ms`; a message that fails ends the attempt of all. Everything runs in one thread: a call
    that blocks keeps the tasks beside it waiting, between two awaits nothing else of the task runs, and nothing runs
    while no message or call is in progress.

    `init`, `window`, `on_timer`, `on_end_of_stream` and `close` may be `async def` as well.
    """

    @abstractmethod
    async def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        """Called for every message. With `task.poison.policy=dead-letter` one after the other, as in a StreamTask."""


class Serde(ABC):
    """Bytes to objects and back, for keys or messages (S2-123). Instances are shared by tasks; keep no state."""

    @abstractmethod
    def to_bytes(self, value: Any) -> bytes | None:
        """Serialise; None stays None."""

    @abstractmethod
    def from_bytes(self, data: bytes | None) -> Any:
        """Deserialise; None stays None.

        Raises:
            ValueError: the bytes are not this format (or any subclass, such as WireError).
        """


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a pipeline: the same when it is repeated, and no other's after a rewind or in a new lineage.

    `number` counts up within a `lineage`, `id` is of both. `epoch` is no part of it: it grows with every start of a
    container, so a store that remembers the highest one that it has seen can refuse what an earlier run sends late.
    """

    lineage: str
    number: int
    epoch: int = field(default=0, compare=False)

    @property
    def id(self) -> str:
        """`<lineage>-<number>`."""
        return f"{self.lineage}-{self.number}"


class PipelineContext(Protocol):
    """What a pipeline has around it when `build` is called."""

    @property
    def spark(self) -> SparkSession:
        """The session that the pipeline runs in, for tables and functions."""

    @property
    def config(self) -> Mapping[str, str]:
        """The job's configuration, secrets resolved when they are asked for, as `TaskContext.config`."""

    def read_stream(self, format: str, **options: str) -> DataFrame:
        """Another streaming source of Spark's: files, a Delta table, `rate`, a Python data source.

        Its offsets are Spark's, not in checkpoints: it cannot be rewound, and begins where its options say when
        Spark's checkpoint is given up (`job.lineage.state=discard`). `path` and `schema` are options as any other.
        """

    def expect(
        self, frame: DataFrame, condition: str, action: Action = "count", *, name: str = ""
    ) -> DataFrame:
        """The frame whose rows are checked: those that meet the SQL condition, and with "count" all others too.

        Where it is null a row does not meet it. What is checked and what fails is counted under `name`, by default
        the condition. With "drop" a row that fails is left out; with "dead-letter" its record goes to the stream of
        dead letters as well, in the transaction of the batch, for which the frame needs the columns of its input;
        with "fail" the batch fails, names the record where it can, and nothing of it is committed.

            orders = self.context.expect(orders, "amount >= 0", "drop")

        Raises:
            ConfigError: there is no such action, the name is taken, or no dead letter can be made of the rows.
        """


class DataFramePipeline(ABC):
    """A pipeline in Spark SQL; compiled by Catalyst, nothing per record in Python."""

    context: PipelineContext
    """Set before `build` is called."""

    output_mode = "append"
    """Spark's output mode: "append", "update" or "complete"."""

    output = ""
    """The output stream, `system.stream`, when `build` returns one DataFrame."""

    @abstractmethod
    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame | Mapping[str, DataFrame]:
        """Turn the inputs (`system.stream` -> streaming DataFrame) into the output, or several by name.

        Every input is used, as often as is needed: joined, united, with itself too; it is read once. What several
        outputs have in common is computed once. With more than one container every row has to be treated alone: what
        shuffles rows or keeps state is refused before the first batch.

        Input columns: stream string, partition int, offset long, key binary, value binary, timestamp timestamp.
        Output columns: `key` (string or binary, optional) decides partition and key; a column `value` (string or
        binary) is written as it is, otherwise all other columns become one JSON object. On Kafka inputs may have
        `headers`, and outputs `partition` and `headers`: docs/kafka.md.

        An output whose name `outputs.<name>.*` configures goes to files or a table, with its own columns; one that is
        neither that nor a stream goes to `write_batch`: docs/pipelines.md.
        """

    def write_batch(self, name: str, frame: DataFrame, batch: Batch) -> None:
        """Write the rows of an output that is neither a stream nor configured; durable on return.

        `frame` is a batch's, not a streaming one. A batch whose checkpoint was not written comes again, with the same
        `batch`: what writes it under `batch.id`, or remembers the id with it, has it once. An exception ends the
        container, which begins the batch again.
        """
        raise NotImplementedError(name)
