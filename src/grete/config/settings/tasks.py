"""Settings of tasks: what they read and write, how much at a time, and how they commit."""

from __future__ import annotations

from functools import cached_property

from grete.config import streams
from grete.config.key_tables import task as keys
from grete.config.settings.section import Section, Setting
from grete.model.ids import SystemStream, SystemStreamPartition


class TaskSettings(Section):
    """`task.*`."""

    lost_offsets = Setting(keys.LOST_OFFSETS_POLICY)
    max_records_per_batch = Setting(keys.MAX_RECORDS)
    trigger_interval_ms = Setting(keys.TRIGGER_INTERVAL)
    window_ms = Setting(keys.WINDOW)

    @cached_property
    def inputs(self) -> tuple[SystemStream, ...]:
        """`task.inputs` in its order, each once: the streams whose partitions tasks are made of.

        Raises:
            ConfigError: an entry without a dot.
        """
        return tuple(streams.task_inputs(self.raw))

    @cached_property
    def broadcast_inputs(self) -> tuple[SystemStreamPartition, ...]:
        """`task.broadcast.inputs` in its order, each once: the partitions that every task reads.

        Raises:
            ConfigError: an entry of another form, or a range of more than 100,000 partitions.
        """
        return tuple(streams.broadcast_inputs(self.raw))
