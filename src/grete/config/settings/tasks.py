"""Settings of tasks: what they read and write, how much at a time, and how they commit."""

from __future__ import annotations

import logging
import re
from functools import cached_property

from grete.application.poison import PoisonPolicy
from grete.config import aliases, java_values
from grete.config.choices import PoisonAction
from grete.config.key import Key
from grete.config.key_tables import task as keys
from grete.config.settings.job import JobSettings
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.config.settings.spark import SparkSettings
from grete.config.settings.streams import side_inputs, system_stream_from_names
from grete.config.settings.systems import EMBEDDED_SYSTEM, SystemSettings, written_as
from grete.config.values import required_value_of, value_of
from grete.errors import ConfigError, WireError
from grete.model.ids import JobId, SystemStream, SystemStreamPartition

_log = logging.getLogger(__name__)
_BROKERS_ALLOW_S = 900.0
"""Their `transaction.max.timeout.ms`, where nobody has set it."""
_GROUPS_OF_A_CLUSTER = 4
"""Where the configuration leaves it to the cluster how many cores a container gets."""
_BROADCAST = re.compile(r"(?:([0-9]+)|\[([0-9]+)-([0-9]+)\])")
_MAX_BROADCAST = 100_000
"""Partitions of one broadcast entry: every task reads each of them, so a larger range is a slip of the hand."""


class TaskSettings(Section):
    """`task.*` (Samza's TaskConfig)."""

    checkpoint_path = OptionalSetting(keys.CHECKPOINT_PATH)
    consumer_group = OptionalSetting(keys.CONSUMER_GROUP)
    java_options = OptionalSetting(keys.OPTS)
    outputs_suffix = OptionalSetting(keys.OUTPUTS_SUFFIX)
    lost_offsets = Setting(keys.LOST_OFFSETS_POLICY)
    max_records_per_batch = Setting(keys.MAX_RECORDS)
    max_bytes_per_batch = Setting(keys.MAX_BYTES)
    """0 is no limit."""
    trigger_interval_ms = Setting(keys.TRIGGER_INTERVAL)
    max_concurrency = Setting(keys.MAX_CONCURRENCY)
    callback_timeout_ms = Setting(keys.CALLBACK_TIMEOUT)
    """-1 is any time."""
    profile_s = Setting(keys.PROFILE)
    """0 is no profile."""
    window_ms = Setting(keys.WINDOW)
    """-1 is never."""

    def shown_group(self, job: JobId, system: str) -> str | None:
        """The consumer group to which the job's next offsets in a system go: the one that is named, else, on Kafka,
        one of the job's own. Its name begins as those on which users have rights anyway.

        None where the system has no groups, or where none is named and none is made.
        """
        capabilities = SystemSettings(self.raw, system).capabilities
        own = f"grete-{job.key}" if capabilities.kafka_topics else None
        return self.consumer_group if self.consumer_group and capabilities.consumer_groups else own

    @cached_property
    def inputs(self) -> tuple[SystemStream, ...]:
        """`task.inputs` as Samza reads it, in its order, each once: tasks are made of their partitions.

        Behind them are the side inputs of stores that it does not name, as in what Samza's planner writes; but for
        those that are broadcast.

        Raises:
            ConfigError: an entry without a dot.
        """
        value = self.raw.get(keys.INPUTS.name, "")
        names = java_values.split_commas(value) if value else []
        filling = [stream for streams in side_inputs(self.raw).values() for stream in streams]
        broadcast = {ssp.system_stream for ssp in self.broadcast_inputs} if filling else ()
        beside = [stream for stream in filling if stream not in broadcast]
        return tuple(dict.fromkeys([*map(system_stream_from_names, names), *beside]))

    @cached_property
    def broadcast_inputs(self) -> tuple[SystemStreamPartition, ...]:
        """The partitions that every task reads: `task.broadcast.inputs` as Samza reads it, in its order, each once.

        `system.stream#0` or `system.stream#[0-3]`; an inverted range is empty, with a warning. Nothing else of these
        streams is read, unless they are in `task.inputs` too.

        Raises:
            ConfigError: an entry of another form, or a range of more than 100,000 partitions.
        """
        entries = java_values.split_list(self.raw.get(keys.BROADCAST.name, "")) or []
        return tuple(dict.fromkeys(ssp for entry in entries for ssp in _broadcast(entry)))

    @cached_property
    def all_inputs(self) -> tuple[SystemStream, ...]:
        """Every stream of which the job reads something, sorted (TaskConfig.getAllInputStreams).

        They have to exist. Tasks are made of the partitions of `inputs` alone.

        Raises:
            ConfigError: as `inputs` and `broadcast_inputs`.
        """
        return tuple(sorted({*self.inputs, *(ssp.system_stream for ssp in self.broadcast_inputs)}))

    @property
    def commit_system(self) -> str:
        """The system in which containers commit: that of the inputs, since a transaction is one system's.

        Of several systems it is the one that `task.checkpoint.system` names; for a pipeline as well where the inputs'
        system keeps no state.
        """
        systems = {stream.system for stream in self.all_inputs}
        if self.checkpoint_system and (len(systems) > 1 or self._commits_beside(systems)):
            return self.checkpoint_system
        return self.inputs[0].system if self.inputs else EMBEDDED_SYSTEM

    def _commits_beside(self, systems: set[str]) -> bool:
        return JobSettings(self.raw).is_pipeline and not any(
            SystemSettings(self.raw, name).capabilities.keeps_state for name in systems
        )

    @cached_property
    def outputs(self) -> tuple[SystemStream, ...]:
        """`task.outputs`, in its order.

        Raises:
            ConfigError: an entry without a dot.
        """
        return tuple(map(system_stream_from_names, self.output_names))

    @property
    def output_names(self) -> tuple[str, ...]:
        """`task.outputs` as they are written."""
        return value_of(self.raw, keys.OUTPUTS) or ()

    @cached_property
    def ends(self) -> dict[str, int]:
        """Where inputs end for a job that is run until it is drained, by the text of each SSP; others have no end.

        Raises:
            ConfigError: an entry that is not `system.stream.partition=offset`.
        """
        found = {}
        for entry in value_of(self.raw, keys.INPUTS_ENDS) or ():
            ssp, _, offset = entry.rpartition("=")
            try:
                found[str(SystemStreamPartition.parse(ssp))] = int(offset)
            except (WireError, ValueError) as error:
                raise ConfigError(
                    f"{keys.INPUTS_ENDS.name}: {entry!r} is not of the form system.stream.partition=offset"
                ) from error
        return found

    @property
    def written_streams(self) -> tuple[SystemStream, ...]:
        """The outputs, and the stream of dead letters.

        Raises:
            ConfigError: an entry without a dot.
        """
        return self.outputs if self.dead_letters is None else (*self.outputs, self.dead_letters)

    @property
    def own_outputs(self) -> tuple[SystemStream, ...]:
        """The outputs as they are called where the job writes them; see `task.outputs.suffix`.

        Raises:
            ConfigError: an entry without a dot.
        """
        return tuple(map(self.written_as, self.outputs))

    def written_as(self, stream: SystemStream) -> SystemStream:
        """What a stream is called that its tasks write under this name."""
        return written_as(self.raw, stream)

    # --- messages that cannot be processed ---

    @cached_property
    def poison(self) -> PoisonPolicy:
        """`task.poison.policy` where it is set, else the meaning of Samza's keys.

        Samza drops what `task.drop.*.errors` and `task.ignored.exceptions` name, and it is lost. Here the
        message is set aside as a dead letter, in the transaction of its batch, and everything else still fails the
        container.

        Raises:
            ConfigError: a value that is none.
        """
        raw = self.raw
        if keys.POISON_POLICY.name in raw:
            action = required_value_of(raw, keys.POISON_POLICY)
            return PoisonPolicy(everything=action is PoisonAction.DEAD_LETTER)
        return PoisonPolicy(
            deserialization=required_value_of(raw, keys.DROP_DESERIALIZATION_ERRORS),
            serialization=required_value_of(raw, keys.DROP_SERIALIZATION_ERRORS),
            exceptions=frozenset(value_of(raw, keys.IGNORED_EXCEPTIONS) or ()),
        )

    @cached_property
    def dead_letters(self) -> SystemStream | None:
        """The stream of dead letters: the one that is named, else one of the job's own where Samza's keys want one.

        Raises:
            ConfigError: a value that is none, a name that is none, or an input without a system.
        """
        named = self.raw.get(keys.DEAD_LETTERS.name, "").strip()
        if named:
            try:
                return SystemStream.parse(named)
            except WireError as error:
                raise ConfigError(
                    f"{keys.DEAD_LETTERS.name}: {named!r} is not of the form system.stream"
                ) from error
        if not self.poison.sets_aside:
            return None
        return SystemStream(self.commit_system, f"{JobSettings(self.raw).written_id}-dead-letters")

    # --- commits and checkpoints ---

    @cached_property
    def checkpoint_store(self) -> str:
        """The store of checkpoints, in grete's words."""
        return aliases.canonical(aliases.CHECKPOINTS, required_value_of(self.raw, keys.CHECKPOINT_FACTORY))

    @property
    def checkpoint_system(self) -> str:
        """`task.checkpoint.system`, empty where it is not set."""
        return self.raw.get(keys.CHECKPOINT_SYSTEM.name, "").strip()

    @cached_property
    def commit_groups(self) -> int:
        """The most transactions that commit a container's batch: one for each of its cores, unless the key is set.

        Raises:
            ConfigError: not a number of one or more.
        """
        given = value_of(self.raw, keys.COMMIT_GROUPS)
        return given or SparkSettings(self.raw).cores or _GROUPS_OF_A_CLUSTER

    @property
    def commit_interval_ms(self) -> int:
        """The least time between two commits of StreamTasks: `task.commit.ms`, else `task.trigger.interval.ms`.

        -1 is never but when a task asks for it, or a limit is reached.
        """
        if keys.COMMIT.name not in self.raw and self.trigger_interval_ms > 0:
            return self.trigger_interval_ms
        return required_value_of(self.raw, keys.COMMIT)

    @property
    def transaction_timeout_s(self) -> float:
        """How long a transaction may take before the brokers abort it.

        Raises:
            ConfigError: not a number of one or more.
        """
        return required_value_of(self.raw, keys.TRANSACTION_TIMEOUT) / 1000

    @property
    def batch_transaction_timeout_s(self) -> float:
        """How long the transaction of a DataFrame pipeline's batch may take: what brokers allow, unless it is set.

        Raises:
            ConfigError: not a number of one or more.
        """
        is_set = keys.TRANSACTION_TIMEOUT.name in self.raw
        return self.transaction_timeout_s if is_set else _BROKERS_ALLOW_S

    # --- jobs that come from Samza ---

    @cached_property
    def restores_state(self) -> bool:
        """Whether stores begin where Samza's checkpoints say, not at their changelogs' ends."""
        return self._is_on(keys.STATE_RESTORE)

    @cached_property
    def retains_state(self) -> bool:
        """Whether a changelog is taken as it is when Samza's checkpoint has nothing of it; else it is emptied."""
        return self._is_on(keys.STATE_RETAIN)

    def _is_on(self, key: Key[bool]) -> bool:
        """As Samza reads it: anything but true is false."""
        return java_values.parse_boolean(self.raw.get(key.name, key.default or ""))


def _broadcast(entry: str) -> list[SystemStreamPartition]:
    name, sign, partitions = entry.partition("#")
    if not sign:
        raise _incorrect(entry)
    stream = system_stream_from_names(name)
    match = _BROADCAST.fullmatch(partitions)
    if match is None:
        raise _incorrect(entry)
    try:
        first, last = (java_values.parse_int(text) for text in (match[1] or match[2], match[1] or match[3]))
    except ValueError as error:
        raise ConfigError(f"{keys.BROADCAST.name}: {entry} has a partition that is too large") from error
    if first > last:
        _log.warning("%s: %s begins behind its end, so it adds no partition", keys.BROADCAST.name, entry)
    if last - first >= _MAX_BROADCAST:
        raise ConfigError(
            f"{keys.BROADCAST.name}: {entry} has {last - first + 1} partitions; every task would read them all"
        )
    return [SystemStreamPartition(stream.system, stream.stream, p) for p in range(first, last + 1)]


def _incorrect(entry: str) -> ConfigError:
    return ConfigError(
        f"incorrect format in {entry}. Broadcast stream names should be in the form 'system.stream#partitionId' "
        f"or 'system.stream#[partitionN-partitionM]'"
    )
