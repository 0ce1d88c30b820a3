"""Settings of the job as a whole."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from grete.config.choices import LauncherChoice
from grete.config.key_tables import autosizing
from grete.config.key_tables import job as keys
from grete.config.key_tables.task import DIAGNOSTICS_STREAM, LOG_LOCATION, LOG_SYSTEM, NAME_GROUPER
from grete.config.places import place_of
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.config.values import required_value_of, valid_value_of
from grete.errors import ConfigError
from grete.model.ids import ContainerId, JobId, SystemStream


class JobSettings(Section):
    """`job.*`: identity, application, containers and their launcher."""

    name = Setting(keys.JOB_NAME)
    application_class = OptionalSetting(keys.APP_CLASS)
    """The DataFrame pipeline, `module:Class`."""
    task_class = OptionalSetting(keys.TASK_CLASS)
    """The StreamTask, `module:Class`."""
    _application_path = OptionalSetting(keys.APPLICATION_PATH)
    is_isolated = Setting(keys.SPLIT_DEPLOYMENT)
    """Whether a StreamTask runs in a process and an environment of its own."""
    application_environment = OptionalSetting(keys.APPLICATION_ENVIRONMENT)
    """The folder of that environment."""
    launcher = Setting(keys.LAUNCHER)
    lineage_state = Setting(keys.LINEAGE_STATE)
    snapshot_interval_ms = Setting(keys.SNAPSHOT_INTERVAL)
    ssp_grouper = Setting(keys.SSP_GROUPER)
    """The full class name in Samza, or its last part: how SSPs become tasks."""
    processors = OptionalSetting(keys.PROCESSOR_LIST)
    """The ids of all processors, each of which gets a task that reads everything."""
    task_name_grouper = Setting(NAME_GROUPER)
    """The full class name in Samza, or its last part: how tasks become containers."""
    elasticity_factor = Setting(keys.ELASTICITY)
    is_expansion_enabled = Setting(keys.SSP_EXPANSION)
    """Whether tasks of a stateful job keep their keys when an input gets more partitions."""
    promoted_over = OptionalSetting(keys.PROMOTED_OVER)
    """The job whose streams this one writes since."""
    succeeded_by = OptionalSetting(keys.SUCCEEDED_BY)
    """The job that goes on instead."""
    is_autosizing = Setting(autosizing.AUTOSIZING)
    is_host_affinity = Setting(keys.HOST_AFFINITY)
    standby_replicas = Setting(keys.STANDBY)
    """Copies of each task's state; 1 is the task's own alone."""
    is_startpoint_enabled = Setting(keys.STARTPOINTS)
    log_system = OptionalSetting(LOG_SYSTEM)
    """The system of the stream that log records go to."""
    is_log_location_enabled = Setting(LOG_LOCATION)
    processor_id = OptionalSetting(keys.PROCESSOR_ID)
    processor_address = OptionalSetting(keys.PROCESSOR_ADDRESS)

    @cached_property
    def id(self) -> JobId:
        """`job.name` and `job.id`.

        Raises:
            ConfigError: no `job.name`.
        """
        if not self.written_id.name:
            raise ConfigError(f"Missing required config: {keys.JOB_NAME.name}. Set it to the job's name")
        return self.written_id

    @cached_property
    def written_id(self) -> JobId:
        """As `id`, with an empty name where none is set: for rules beside the one that asks for a name."""
        default = keys.JOB_ID.default or ""
        return JobId(self.raw.get(keys.JOB_NAME.name, ""), self.raw.get(keys.JOB_ID.name, default))

    @property
    def application_path(self) -> str | None:
        """The folder of the application's modules; an empty one takes back what another file says."""
        return self._application_path or None

    @property
    def modules_folder(self) -> str | None:
        """Where an isolated application's modules are: `application_path`, else in its package."""
        # it comes with processes and pipes, which a command seldom needs
        from grete.application.beside import modules_folder

        return modules_folder(self.application_path, self.application_environment)

    @property
    def is_pipeline(self) -> bool:
        """Whether the application is a DataFrame pipeline, whose state is Spark's."""
        return keys.APP_CLASS.name in self.raw

    @property
    def reads_all_in_each_task(self) -> bool:
        """Whether the grouper gives each task all partitions, and none has keys of its own."""
        return self.ssp_grouper.endswith("AllSspToSingleTaskGrouperFactory")

    @cached_property
    def container_count(self) -> int:
        """Autosizing's where it is enabled and has one, else `job.container.count` (S2-53)."""
        count = autosizing.AUTOSIZING_COUNT
        is_autosized = self.is_autosizing and count.name in self.raw
        return required_value_of(self.raw, count if is_autosized else keys.CONTAINER_COUNT)

    @property
    def is_of_processors(self) -> bool:
        """Whether containers run in processes that joined the job (`grete.StreamProcessor`)."""
        return bool(self.launcher == LauncherChoice.PROCESSORS)

    @cached_property
    def container_ids(self) -> tuple[ContainerId, ...]:
        """The containers that tasks are grouped into: one for each processor, else `container_count` of them."""
        if self.is_of_processors:
            return tuple(map(ContainerId, valid_value_of(self.raw, keys.CONTAINER_IDS) or ("0",)))
        return tuple(ContainerId(str(number)) for number in range(self.container_count))

    @cached_property
    def diagnostics_stream(self) -> SystemStream | None:
        """The stream of exceptions, starts and exits; None where diagnostics are off.

        Raises:
            ConfigError: they are on and no stream is named.
            WireError: it is named without a system.
        """
        if not required_value_of(self.raw, keys.DIAGNOSTICS):
            return None
        name = self.raw.get(DIAGNOSTICS_STREAM.name)
        if not name:
            raise ConfigError(f"Missing required config: {DIAGNOSTICS_STREAM.name}. Set it to system.stream")
        return SystemStream.parse(name)

    def state_folder(self, home: Path) -> Path:
        """The folder that holds one for each job, absolute."""
        return Path(self.raw.get(keys.STATE_DIR.name, str(home / "jobs"))).absolute()

    def state_directory(self, job: JobId, home: Path) -> Path:
        """The folder of a job's lineages, store files, logs and tokens."""
        return self.state_folder(home) / job.key

    def lineage_place(self, job: JobId, home: Path) -> Path | str:
        """The folder of a job's lineages, one in it for each container; a text is an address of Hadoop's."""
        named = self.raw.get(keys.LINEAGE_DIR.name)
        if not named:
            return self.state_directory(job, home)
        place = place_of(named)
        return f"{place}/{job.key}" if isinstance(place, str) else place.absolute() / job.key

    def container_lineages(self, job: JobId, home: Path, container: ContainerId) -> Path | str:
        """As `lineage_place`, of one container."""
        place, own = self.lineage_place(job, home), f"container-{container}/lineages"
        return f"{place}/{own}" if isinstance(place, str) else place / own

    @property
    def has_lineages_on_hadoop(self) -> bool:
        """Whether lineages are at an address of Hadoop's, which is no folder of this machine."""
        return isinstance(place_of(self.raw.get(keys.LINEAGE_DIR.name, "")), str)

    def standby_folder(self, home: Path) -> Path:
        """As `state_folder`, of standby containers."""
        named = self.raw.get(keys.STANDBY_DIR.name)
        return Path(named).absolute() if named else self.state_folder(home)

    @property
    def snapshot_location(self) -> str | None:
        """The folder or address of the job's snapshots of stores, references unresolved; None without."""
        named = self.raw.get(keys.SNAPSHOT_DIR.name)
        if not named:
            return None
        place = place_of(named)
        if isinstance(place, Path):
            return str(place.absolute() / self.id.key)
        address, asks, options = place.partition("?")
        return f"{address.rstrip('/')}/{self.id.key}{asks}{options}"

    def standby_directory(self, job: JobId, home: Path) -> Path:
        """The folder of a job's copies of store files."""
        return self.standby_folder(home) / job.key
