"""Settings of a system (Samza's SystemConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from grete.config import aliases, system_types
from grete.config.key_tables import streams as keys
from grete.config.key_tables.job import APP_CLASS
from grete.config.key_tables.task import CHECKPOINT_SYSTEM, DEAD_LETTERS, OUTPUTS, OUTPUTS_SUFFIX
from grete.config.settings.section import NamedSection, OptionalSetting, Setting
from grete.model.capabilities import Capabilities
from grete.model.ids import SystemStream

EMBEDDED_SYSTEM = "local"
_FACTORY = ".samza.factory"
ELSEWHERE = ":"
"""Between system and stream in the name of an output of another system than the job's own."""


def system_names(raw: Mapping[str, str]) -> list[str]:
    """The configured systems, sorted: those with a `systems.<name>.samza.factory` that is not blank."""
    return sorted(
        key[len("systems.") : -len(_FACTORY)]
        for key, value in raw.items()
        if key.startswith("systems.") and key.endswith(_FACTORY) and key.count(".") == 3 and value.strip()
    )


def systems_without_factory(raw: Mapping[str, str]) -> list[str]:
    """The names that have settings of a system and no factory, sorted: there are no such systems, as in Samza."""
    named = {key.split(".")[1] for key in raw if key.startswith("systems.") and key.count(".") > 1}
    return sorted(named - {EMBEDDED_SYSTEM, *system_names(raw)})


def client_keys(raw: Mapping[str, str], system: str, client: str) -> dict[str, str]:
    """The keys of a system's `consumer` or `producer`, by the names that Samza's Java client has for them."""
    prefix = keys.SYSTEM_OTHER.named(system, f"{client}.")
    return {key.removeprefix(prefix): key for key in raw if key.startswith(prefix)}


def client_properties(raw: Mapping[str, str], system: str, client: str) -> dict[str, str]:
    """As `client_keys`, the values as they are written."""
    return {name: raw[key] for name, key in client_keys(raw, system, client).items()}


def written_as(raw: Mapping[str, str], stream: SystemStream) -> SystemStream:
    """What a stream is called that StreamTasks write under this name: a clone writes others than its original."""
    suffix = raw.get(OUTPUTS_SUFFIX.name, "")
    if not suffix or str(stream) == raw.get(DEAD_LETTERS.name):
        return stream
    return SystemStream(stream.system, stream.stream + suffix)


class SystemSettings(NamedSection):
    """`systems.<name>.*`."""

    factory = OptionalSetting(keys.SYSTEM_FACTORY)
    connector_jars = OptionalSetting(keys.CONNECTOR_JARS)
    """A folder with the jars of Spark's Kafka connector."""
    pipeline_headers = Setting(keys.PIPELINE_HEADERS)
    """Whether inputs of a DataFrame pipeline have the column `headers`."""
    pipeline_delivery = Setting(keys.PIPELINE_DELIVERY)
    """How the rows of a DataFrame pipeline get into its topics."""

    @cached_property
    def kind(self) -> str:
        """The kind of system in grete's words; without a factory it is the embedded one."""
        return aliases.canonical(aliases.SYSTEMS, (self.factory or "").strip() or EMBEDDED_SYSTEM)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of systems of its kind."""
        return system_types.capabilities(self.kind)

    @property
    def is_known(self) -> bool:
        """Whether there is such a kind of system; of one that there is not, validation says that and nothing else."""
        return system_types.find_type(self.kind) is not None

    @property
    def is_embedded(self) -> bool:
        """Whether its streams are files of this machine."""
        return self.capabilities.is_embedded

    @property
    def commits_beside(self) -> str | None:
        """The system that keeps the state that this one cannot; None where this one can, or when none is named."""
        named = self.raw.get(CHECKPOINT_SYSTEM.name, "").strip()
        if not named or self.capabilities.keeps_state:
            return None
        return named if SystemSettings(self.raw, named).capabilities.keeps_state else None

    def name_of(self, stream: SystemStream) -> str | None:
        """The system's name of a stream that its tasks write; None when they cannot.

        A system that keeps no state knows the streams of the system beside it as `system.stream`. Outputs of any
        other system are `system:stream`, which no stream is called. With `task.outputs.suffix` the name ends so.
        """
        name = written_as(self.raw, stream).stream
        if stream.system == self.name:
            return name
        if stream.system == self.commits_beside:
            return f"{stream.system}.{name}"
        return f"{stream.system}{ELSEWHERE}{name}" if self._is_output(stream) else None

    def _is_output(self, stream: SystemStream) -> bool:
        """Whether it is declared as an output of a job whose outputs are not Spark's."""
        declared = map(str.strip, self.raw.get(OUTPUTS.name, "").split(","))
        return str(stream) in declared and APP_CLASS.name not in self.raw

    @property
    def own_keys(self) -> dict[str, str]:
        """The keys by which a process reads its streams: its own, and those of streams where they configure it."""
        of_streams = ("streams.", "sensitive.streams.") if self.capabilities.configured_by_streams else ()
        prefixes = (keys.SYSTEM_OTHER.named(self.name, ""), *of_streams)
        return {key: value for key, value in self.raw.items() if key.startswith(prefixes)}

    @cached_property
    def servers(self) -> str | None:
        """The addresses of its brokers, as they are written; None where none are."""
        clients = (f"systems.{self.name}.{client}.bootstrap.servers" for client in ("producer", "consumer"))
        return next((self.raw[key] for key in clients if self.raw.get(key, "").strip()), None)

    @property
    def brokers(self) -> frozenset[str] | str:
        """Its brokers; its name where none are given. Systems on one cluster share their topics."""
        return self.name if self.servers is None else frozenset(map(str.strip, self.servers.split(",")))

    def directory(self, home: Path) -> Path:
        """The folder of an embedded system."""
        path = keys.SYSTEM_PATH.named(self.name)
        return Path(self.raw[path]) if path in self.raw else home / EMBEDDED_SYSTEM

    def place(self, home: Path) -> str:
        """Where the system's streams are: two names with the same place mean the same streams."""
        return str(self.directory(home)) if self.is_embedded else f"{self.kind} {self.servers}"
