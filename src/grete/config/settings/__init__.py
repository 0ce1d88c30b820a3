"""A configuration as values: read through the key table, one answer to each question.

`Settings.of(raw)` has a section for each subject. A section's values have the type of their key, its default and, for
choices, an enum; they are read when they are first asked for, so a wrong value is an error only where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from grete.config.key_tables.task import DEAD_LETTERS, DIAGNOSTICS_STREAM, METRICS_STREAM, OUTPUTS
from grete.config.settings.azure import AzureSettings
from grete.config.settings.coordinator import CoordinatorSettings
from grete.config.settings.deploy import DeploySettings
from grete.config.settings.eventhubs import HubsSettings
from grete.config.settings.job import JobSettings
from grete.config.settings.kubernetes import KubernetesSettings
from grete.config.settings.metrics import SnapshotReporter, reporter_names, snapshot_reporters
from grete.config.settings.outputs import OutputSettings, output_names
from grete.config.settings.serdes import SerdeSettings
from grete.config.settings.spark import SparkSettings
from grete.config.settings.stores import StoreSettings, store_names
from grete.config.settings.streams import StreamSettings, side_inputs
from grete.config.settings.systems import SystemSettings, system_names
from grete.config.settings.tasks import TaskSettings
from grete.config.settings.zookeeper import ZooKeeperSection
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.suggestions import or_one_of

if TYPE_CHECKING:
    from grete.config.settings.autosizing import AutosizingSettings
    from grete.config.settings.traces import TraceSettings

_WRITTEN = (OUTPUTS, DEAD_LETTERS, DIAGNOSTICS_STREAM)


@dataclass(frozen=True)
class Settings:
    """The settings of a job. `raw` is the configuration as it is written, for the wire and fingerprints.

    Without any there are the defaults alone.
    """

    raw: Mapping[str, str] = field(default_factory=dict, repr=False)
    _streams: dict[SystemStream, StreamSettings] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, raw: Mapping[str, str]) -> Settings:
        """The settings of a configuration in current words (`canonical_keys`)."""
        return cls(dict(raw))

    def __reduce__(self) -> tuple[type[Settings], tuple[Mapping[str, str]]]:
        """Travel to other processes as what was written, without what was read of it."""
        return Settings, (self.raw,)

    @cached_property
    def job(self) -> JobSettings:
        """The job as a whole."""
        return JobSettings(self.raw)

    @cached_property
    def task(self) -> TaskSettings:
        """Its tasks."""
        return TaskSettings(self.raw)

    @cached_property
    def coordinator(self) -> CoordinatorSettings:
        """Its coordinator."""
        return CoordinatorSettings(self.raw)

    @cached_property
    def autosizing(self) -> AutosizingSettings:
        """How many containers it has."""
        from grete.config.settings.autosizing import (
            AutosizingSettings,  # few jobs have any, and no command asks
        )

        return AutosizingSettings(self.raw)

    @cached_property
    def traces(self) -> TraceSettings:
        """Where spans of its work go."""
        from grete.config.settings.traces import TraceSettings  # few jobs have any, and no command asks

        return TraceSettings(self.raw)

    @cached_property
    def kubernetes(self) -> KubernetesSettings:
        """Where leaders are elected on Kubernetes."""
        return KubernetesSettings(self.raw)

    @cached_property
    def zookeeper(self) -> ZooKeeperSection:
        """Where leaders are elected on ZooKeeper."""
        return ZooKeeperSection(self.raw)

    @cached_property
    def deploy(self) -> DeploySettings:
        """Where and with what it is deployed."""
        return DeploySettings(self.raw)

    @cached_property
    def azure(self) -> AzureSettings:
        """The account of Azure Storage, and places in it."""
        return AzureSettings(self.raw)

    @property
    def metrics_reporters(self) -> list[SnapshotReporter]:
        """The streams that get snapshots of metrics.

        Raises:
            ConfigError: a setting of one is wrong.
        """
        return snapshot_reporters(self.raw)

    @cached_property
    def spark(self) -> SparkSettings:
        """Settings of Spark."""
        return SparkSettings(self.raw)

    @cached_property
    def system_names(self) -> tuple[str, ...]:
        """The configured systems, sorted."""
        return tuple(system_names(self.raw))

    def system(self, name: str) -> SystemSettings:
        """A system by its name."""
        return SystemSettings(self.raw, name)

    def hubs(self, system: str) -> HubsSettings:
        """The hubs of a system on Event Hubs."""
        return HubsSettings(self.raw, system)

    def stream(self, stream: SystemStream) -> StreamSettings:
        """A stream, whichever names its keys have."""
        return self._streams.setdefault(stream, StreamSettings(self.raw, stream))

    @cached_property
    def store_names(self) -> tuple[str, ...]:
        """Every store that is configured, sorted."""
        return tuple(store_names(self.raw))

    @cached_property
    def side_inputs(self) -> dict[str, tuple[list[str], str | None]]:
        """Of each store that streams fill: their names, and the class that makes entries of their messages.

        Raises:
            ConfigError: a stream's name without a dot.
        """
        found = side_inputs(self.raw).items()
        return {
            name: ([str(one) for one in of], self.store(name).side_inputs_processor) for name, of in found
        }

    @cached_property
    def outputs(self) -> dict[str, OutputSettings]:
        """The outputs of a pipeline that are no streams, by name."""
        return {name: OutputSettings(self.raw, name) for name in output_names(self.raw)}

    def serde(self, name: str) -> SerdeSettings:
        """A serde by its name."""
        return SerdeSettings(self.raw, name)

    @property
    def is_stateful(self) -> bool:
        """Whether the job has stores."""
        return bool(self.store_names)

    def known_store(self, name: str) -> StoreSettings:
        """A store by its name.

        Raises:
            ConfigError: the job has none of this name.
        """
        if name not in self.store_names:
            raise ConfigError(f"the job has no store {name!r}{or_one_of(name, self.store_names)}")
        return self.store(name)

    def store(self, name: str) -> StoreSettings:
        """A store by its name."""
        return StoreSettings(self.raw, name)

    def own_streams(self, system: str) -> set[str]:
        """The streams of a system that the job is known to write: changelogs, outputs, dead letters, diagnostics,
        metrics.

        A pattern that chooses inputs must not choose these: the job would read what it writes, without end.
        """
        stores = map(self.store, self.store_names)
        job = self.job.written_id
        changelogs = {one.changelog_stream(job) for one in stores if one.changelog_system in (None, system)}
        written = [name.strip() for key in _WRITTEN for name in self.raw.get(key.name, "").split(",")]
        written += [self.raw.get(METRICS_STREAM.named(name), "") for name in reporter_names(self.raw)]
        return changelogs | {n.removeprefix(f"{system}.") for n in written if n.startswith(f"{system}.")}
