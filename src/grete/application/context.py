"""Objects that a task gets beside its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grete.api import KeyValueStore, MetricsRegistry, Scheduler
from grete.application.expectations import TaskExpectations
from grete.errors import ConfigError
from grete.model.ids import SystemStreamPartition, TaskName
from grete.suggestions import or_one_of


class TaskControl:
    """Implements `grete.TaskCoordinator`; the runner reads the wishes at the end of the batch."""

    def __init__(self) -> None:
        self.wants_commit = False
        self.shutdown_task = False
        self.shutdown_all = False

    def commit(self) -> None:
        """See TaskCoordinator."""
        self.wants_commit = True

    def shutdown(self, *, all_tasks: bool = False) -> None:
        """See TaskCoordinator."""
        self.wants_commit = self.shutdown_task = True
        self.shutdown_all = self.shutdown_all or all_tasks


class Context:
    """Implements `grete.TaskContext`."""

    def __init__(
        self,
        task_name: TaskName,
        ssps: Sequence[SystemStreamPartition],
        config: Mapping[str, str],
        stores: Mapping[str, KeyValueStore],
        metrics: MetricsRegistry,
        scheduler: Scheduler,
    ) -> None:
        self.task_name = task_name
        """See TaskContext."""
        self.system_stream_partitions = ssps
        """See TaskContext."""
        self.config = config
        """See TaskContext."""
        self.metrics = metrics
        """See TaskContext."""
        self.scheduler = scheduler
        """See TaskContext."""
        self.expect = TaskExpectations(metrics).check
        """See TaskContext."""
        self._stores = stores

    def store(self, name: str) -> KeyValueStore:
        """See TaskContext."""
        try:
            return self._stores[name]
        except KeyError:
            meant = or_one_of(name, self._stores)
            raise ConfigError(f"the job has no store {name!r}{meant}; set stores.{name}.factory") from None
