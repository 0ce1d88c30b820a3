"""Azure Event Hubs as a system, over its Kafka endpoint; what it cannot keep is kept by another system of the job.

A hub has no transactions and no compaction. So checkpoints, changelogs and fences of a job that reads hubs live in
the system that `task.checkpoint.system` names, and a commit has two steps: records for hubs are sent and
acknowledged, then the other system commits everything else. A process that dies in between sends them again: at least
once for outputs on hubs, exactly once for state. A fence keeps an older process out of the second step, and is looked
at before the first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from grete.api import Serde
from grete.arrow import pa
from grete.config.key_tables.task import CHECKPOINT_SYSTEM
from grete.config.settings import Settings
from grete.errors import ConfigError, StreamError, StreamNotFound
from grete.kafka.client import KafkaConnection
from grete.kafka.errors import stream_errors
from grete.keyed_log.base import Fence, KeyedLog, Record
from grete.model.capabilities import Capabilities
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.admin import PartitionOffsets
from grete.systems.base import Change, Message, System, SystemContext, by_partition
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.eventhubs import SYSTEM
from grete.systems.eventhubs.group import HubGroupOffsets
from grete.systems.eventhubs.hash import hub_partitioner
from grete.systems.eventhubs.hubs import Hub, Hubs, create_command
from grete.systems.eventhubs.sender import HubSender
from grete.systems.eventhubs.transactions import HubTransactions
from grete.systems.factory import open_system
from grete.systems.partitioner import Partitioner
from grete.systems.records import batches, pack


def open_eventhubs_system(context: SystemContext) -> EventHubsSystem:
    """The hubs that `streams.<id>.eventhubs.*` names.

    Raises:
        MissingExtra: confluent-kafka is not installed.
    """
    return EventHubsSystem(context)


class Routes:
    """Which streams are no hubs: the job's changelogs, and what is named `system.stream` of the system beside."""

    def __init__(self, settings: Settings, system: str) -> None:
        job = settings.job.written_id
        self._changelogs = {settings.store(store).changelog_stream(job) for store in settings.store_names}
        self._prefix = f"{settings.system(system).commits_beside}."

    def beside(self, stream: str) -> str | None:
        """The stream's name in the other system; None for a hub."""
        if stream in self._changelogs:
            return stream
        return stream.removeprefix(self._prefix) if stream.startswith(self._prefix) else None


def open_other(context: SystemContext) -> System:
    """The system that keeps what Event Hubs cannot.

    Raises:
        ConfigError: none is named, or it is on Event Hubs as well.
    """
    return open_system(context.settings, other_name(context), context.home, context.clock)


def other_name(context: SystemContext) -> str:
    """The name of the system that keeps what Event Hubs cannot.

    Raises:
        ConfigError: none is named, or it is on Event Hubs as well.
    """
    settings = context.settings
    named = settings.system(context.name).commits_beside
    if named is None:
        raise ConfigError(
            f"{CHECKPOINT_SYSTEM.name}={settings.task.checkpoint_system!r}: Event Hubs (system {context.name!r}) "
            f"keeps no checkpoints and changelogs; "
            f"name a Kafka system or local, the embedded one"
        )
    return named


class EventHubsSystem(System):
    """The hubs of a system, and beside them the job's own streams in another. Safe to use from several threads."""

    def __init__(self, context: SystemContext) -> None:
        self.name = context.name
        self._context = context
        self._routes = Routes(context.settings, context.name)
        self._hubs = Hubs(context.settings, context.name, context.clock)
        self._sender = HubSender(self._hubs, context.settings.hubs(context.name), context.clock)
        self._lock = threading.RLock()

    @cached_property
    def _other(self) -> System:
        """Opened when it is needed: not to look at hubs alone."""
        return open_other(self._context)

    @property
    def capabilities(self) -> Capabilities:
        """See System. The gaps are those of the job's own streams, in the other system."""
        return replace(SYSTEM.capabilities, has_gaps=self._other.capabilities.has_gaps)

    def checkpoint_log(self, name: str) -> KeyedLog:
        """See System. In the other system."""
        return self._other.checkpoint_log(name)

    # --- SystemAdmin ---

    def partition_count(self, stream: str) -> int:
        """See SystemAdmin."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.partition_count(beside)
        return self._hubs.of(stream).info().partitions

    def stream_uid(self, stream: str) -> str:
        """See System. A service that gives topics no ids has one for all: then a recreated hub is not noticed."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.stream_uid(beside)
        return self._hubs.of(stream).info().id

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.offsets(beside)
        hub = self._hubs.of(stream)
        with self._asking(hub) as connection:
            held = connection.held(hub.topic, range(hub.info().partitions))
        return {partition: PartitionOffsets.held(*offsets) for partition, offsets in held.items()}

    @contextmanager
    def _asking(self, hub: Hub) -> Iterator[KafkaConnection]:
        with stream_errors(f"reading offsets of {hub.stream} in system {self.name!r}"):
            yield hub.namespace.connection

    def offset_at(self, ssp: SystemStreamPartition, timestamp_ms: int) -> str:
        """See SystemAdmin. By the time at which the service took a record."""
        hub = self._hubs.of(ssp.stream)
        if ssp.partition >= hub.info().partitions:
            raise StreamNotFound(f"{ssp.system_stream} has no partition {ssp.partition}")
        with self._asking(hub) as connection:
            return str(connection.offset_at(hub.topic, ssp.partition, timestamp_ms))

    def create_stream(self, spec: StreamSpec) -> None:
        """See SystemAdmin. Only the job's own streams are created; a hub that is there with that shape is fine."""
        beside = self._routes.beside(spec.stream)
        if beside is not None:
            self._other.create_stream(replace(spec, stream=beside))
            return
        self._require(spec, at_least=False)

    def ensure_stream(self, spec: StreamSpec) -> None:
        """See System. As `create_stream`."""
        beside = self._routes.beside(spec.stream)
        if beside is not None:
            self._other.ensure_stream(replace(spec, stream=beside))
            return
        self._require(spec, at_least=True)

    def _require(self, spec: StreamSpec, *, at_least: bool) -> None:
        """A hub of this shape.

        Raises:
            StreamError: there is none, and here none is made.
        """
        if spec.compacted:
            raise StreamError(
                f"{spec.stream!r} cannot be kept on Event Hubs (system {self.name!r}): a changelog is compacted. "
                f"Name it in task.checkpoint.system's system"
            )
        hub = self._hubs.of(spec.stream)
        try:
            found = hub.info().partitions
        except StreamNotFound as error:
            raise StreamError(
                f"hub {hub.topic!r} of system {self.name!r} is not there, and grete makes none; make it with Azure's "
                f"tools: {create_command(hub.topic, spec.partitions)}"
            ) from error
        if found < spec.partitions or (found > spec.partitions and not at_least):
            raise StreamError(f"hub {hub.topic!r} has {found} partitions; asked for {spec.partitions}")

    def add_partitions(self, stream: str, partitions: int) -> None:
        """See SystemAdmin: refused."""
        raise StreamError(
            f"partitions of hub {stream!r} are added with Azure's tools, on its premium and dedicated tiers only: "
            f"az eventhubs eventhub update --resource-group GROUP --namespace-name NAMESPACE --name {stream} "
            f"--partition-count {partitions}"
        )

    def streams(self) -> Sequence[str]:
        """See SystemAdmin. Of the namespaces that the configuration names."""
        return self._hubs.names()

    def read(
        self, stream: str, partition: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See System."""
        beside = self._routes.beside(stream)
        if beside is not None:
            yield from self._other.read(beside, partition, start, end)
            return
        hub = self._hubs.of(stream)
        until = int(self.offsets(stream)[partition].upcoming) if end is None else end
        with self._lock:
            yield from batches(hub.namespace.ranges.read(hub.topic, partition, start, until))

    def changes(
        self,
        stream: str,
        partition: int,
        start: int,
        end: int,
        *,
        copied_ms: int = 0,
        has_times: bool = False,
    ) -> Iterator[Change]:
        """See System: in the other system."""
        return self._other.changes(stream, partition, start, end, copied_ms=copied_ms, has_times=has_times)

    def partitioner(self, stream: SystemStream, key_serde: Serde) -> Partitioner:
        """See System: by `partition.method`; of streams beside the hubs their system's."""
        if stream.system != self.name:
            return self._other.partitioner(stream, key_serde)
        return hub_partitioner(self._context.settings, stream, key_serde)

    def largest_record(self, stream: str) -> int:
        """See System."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.largest_record(beside)
        limit = self._context.settings.hubs(self.name).largest_record
        return limit if limit > 0 else 1 << 20

    def is_compacted(self, stream: str) -> bool:
        """See System. No hub is."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.is_compacted(beside)
        self._hubs.of(stream).info()
        return False

    def append(self, stream: str, messages: Iterable[Message]) -> int:
        """See System, but for hubs: of several messages some may be there when an error is raised."""
        beside = self._routes.beside(stream)
        if beside is not None:
            return self._other.append(beside, messages)
        batch = list(messages)
        choose = hub_partitioner(self._context.settings, SystemStream(self.name, stream))
        placed = by_partition(f"hub {stream!r}", batch, self.partition_count(stream), choose)
        with self._lock:
            self._sender.send(_segment(stream, *one) for one in placed.items())
        return len(batch)

    def intact_from(self, stream: str, partition: int) -> int:
        """See System. Only the job's own streams are compacted."""
        return self._other.intact_from(stream, partition)

    def group_offsets(self, group: str, fence: Fence | None) -> HubGroupOffsets:
        """See System. The fence is another system's and not looked at: who was succeeded may write once more."""
        return HubGroupOffsets(self._hubs, self.name, group, self._context.clock)

    def close(self) -> None:
        """See SystemAdmin."""
        self._hubs.close()
        if "_other" in self.__dict__:
            self._other.close()

    def forget(self) -> None:
        """See System."""
        if "_other" in self.__dict__:
            self._other.forget()

    # --- TransactionalStore ---

    def raise_fence(self, fences: Iterable[Fence]) -> None:
        """See TransactionalStore. In the other system."""
        self._other.raise_fence(fences)

    def begin_epoch(self, fence: Fence) -> Fence:
        """See TransactionalStore. In the other system."""
        return self._other.begin_epoch(fence)

    def keep_fences(self, fences: Sequence[Fence]) -> None:
        """See System. In the other system."""
        self._other.keep_fences(fences)

    def transactions(self, fences: Sequence[Fence], slot: int, streams: Sequence[str]) -> HubTransactions:
        """See System: the other system's, and records for hubs before them."""
        hubs = set(self._context.settings.hubs(self.name).known_streams())
        kept = [self._routes.beside(stream) or stream for stream in streams if stream not in hubs]
        return HubTransactions(self._other.transactions(fences, slot, kept), self._routes.beside, self._send)

    def _send(self, segments: Sequence[SegmentWrite]) -> dict[tuple[str, int], int]:
        with self._lock:
            return self._sender.send(segments)

    def settled_records(self, log: str, after: int) -> Iterator[Record]:
        """See System. In the other system."""
        return self._other.settled_records(log, after)

    def commit(self, group: CommitGroup) -> dict[tuple[str, int], int]:
        """See TransactionalStore, but for records on hubs: they are visible first, and stay so when the rest fails.

        Raises:
            StreamError: a hub did not take a record; some may be there, and nothing else is.
        """
        routed = [(one, self._routes.beside(one.stream)) for one in group.segments]
        sent = [one for one, beside in routed if beside is None]
        kept = [
            SegmentWrite(beside, one.partition, one.count, one.data)
            for one, beside in routed
            if beside is not None
        ]
        if sent:  # are we fenced already?
            self._other.commit(replace(group, segments=(), checkpoint_entries=()))
        ends = self._send(sent)
        found = self._other.commit(replace(group, segments=kept))
        for one, beside in routed:
            if beside is not None:
                ends[one.stream, one.partition] = found[beside, one.partition]
        return ends


def _segment(stream: str, partition: int, messages: Sequence[Message]) -> SegmentWrite:
    data = pack([m.key for m in messages], [m.value for m in messages], [m.timestamp_ms for m in messages])
    return SegmentWrite(stream, partition, len(messages), data)
