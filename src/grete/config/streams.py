"""What a configuration says of systems and streams, with the precedence of Samza's StreamConfig and SystemConfig."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from grete.config import aliases, java_values
from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition

_log = logging.getLogger(__name__)
_FACTORY = ".samza.factory"
_BROADCAST = re.compile(r"(?:([0-9]+)|\[([0-9]+)-([0-9]+)\])")
_MAX_BROADCAST = 100_000
"""Partitions of one broadcast entry: every task reads each of them, so a larger range is a slip of the hand."""
EMBEDDED_SYSTEM = "local"


def system_names(config: Mapping[str, str]) -> list[str]:
    """The configured systems, sorted: those with a `systems.<name>.samza.factory` that is not blank."""
    return sorted(
        key[len("systems.") : -len(_FACTORY)]
        for key, value in config.items()
        if key.startswith("systems.") and key.endswith(_FACTORY) and key.count(".") == 3 and value.strip()
    )


def system_kind(config: Mapping[str, str], system: str) -> str:
    """What kind of system it is, in grete's words; without a factory it is the embedded one."""
    return aliases.canonical(
        aliases.SYSTEMS, config.get(f"systems.{system}{_FACTORY}", "").strip() or EMBEDDED_SYSTEM
    )


def system_directory(config: Mapping[str, str], system: str, home: Path) -> Path:
    """The folder of an embedded system."""
    return Path(config.get(f"systems.{system}.path", str(home / "local")))


def system_place(config: Mapping[str, str], system: str, home: Path) -> str:
    """Where the system's streams are: two names with the same place mean the same streams."""
    if system_kind(config, system) == EMBEDDED_SYSTEM:
        return str(system_directory(config, system, home))
    servers = "bootstrap.servers"
    producer, consumer = (
        config.get(f"systems.{system}.{side}.{servers}") for side in ("producer", "consumer")
    )
    return f"{system_kind(config, system)} {producer or consumer}"


def coordinator_system(config: Mapping[str, str]) -> str:
    """The system of the coordinator stream: named, else the default system, else the only one (S2-52).

    Without any configured system it is the embedded `local`.

    Raises:
        ConfigError: several systems and none named.
    """
    named = config.get("job.coordinator.system") or config.get("job.default.system")
    if named:
        return named
    systems = system_names(config)
    if len(systems) > 1:
        raise ConfigError(
            f"Missing job.coordinator.system configuration. Cannot proceed with job execution. Set it to one of "
            f"{', '.join(systems)}"
        )
    chosen = systems[0] if systems else EMBEDDED_SYSTEM
    _log.debug("job.coordinator.system is not set; it is %s, the only system there is", chosen)
    return chosen


def commit_system(config: Mapping[str, str]) -> str:
    """The system in which containers commit: that of the inputs, since a transaction is one system's."""
    return next((stream.system for stream in task_inputs(config)), EMBEDDED_SYSTEM)


def system_stream_from_names(text: str) -> SystemStream:
    """`StreamUtil.getSystemStreamFromNames`: split at the first dot; either side may be empty.

    Raises:
        ConfigError: no dot.
    """
    system, dot, stream = text.partition(".")
    if not dot:
        raise ConfigError(
            f"No '.' in stream name '{text}'. Stream names should be in the form 'system.stream'"
        )
    return SystemStream(system, stream)


def system_stream_from_name_or_id(config: Mapping[str, str], text: str) -> SystemStream:
    """`system.stream`, or a stream id that `streams.<id>.samza.*` maps to a system and a name.

    Raises:
        ConfigError: an id without a system.
    """
    if "." in text:
        return system_stream_from_names(text)
    system = stream_system(config, text)
    if system is None:
        raise ConfigError(f"stream {text!r} has no system: set streams.{text}.samza.system")
    return SystemStream(system, physical_name(config, text))


def stream_system(config: Mapping[str, str], stream_id: str) -> str | None:
    """The system of a stream id: its own, else `job.default.system`."""
    return config.get(f"streams.{stream_id}.samza.system", config.get("job.default.system"))


def physical_name(config: Mapping[str, str], stream_id: str) -> str:
    """A stream id's name in its system: the id itself unless configured."""
    return config.get(f"streams.{stream_id}.samza.physical.name", stream_id)


def stream_ids(config: Mapping[str, str]) -> list[str]:
    """Every stream id that has a property, sorted. An id holds no dot."""
    return sorted({key.split(".")[1] for key in config if key.startswith("streams.") and key.count(".") >= 2})


def stream_id_of(config: Mapping[str, str], stream: SystemStream) -> str | None:
    """The id whose keys speak of a stream, None when there is none.

    It is the one that is mapped to the stream's system and name, as in Samza; else one of the name without a system,
    which Samza would overlook. A name with dots, which no id has, is its own id.

    Raises:
        ConfigError: several ids are mapped to it.
    """
    named = [id_ for id_ in stream_ids(config) if physical_name(config, id_) == stream.stream]
    found = [id_ for id_ in named if stream_system(config, id_) == stream.system]
    found = found or [id_ for id_ in named if stream_system(config, id_) is None]
    if len(found) > 1:
        raise ConfigError(f"streams {', '.join(found)} are all mapped to {stream}; keep one of them")
    if found:
        return found[0]
    return stream.stream if "." in stream.stream and may_be_id(config, stream) else None


def may_be_id(config: Mapping[str, str], stream: SystemStream) -> bool:
    """Whether keys with the stream's own name as the id would speak of it, and of no other stream."""
    is_its_system = stream_system(config, stream.stream) in (None, stream.system)
    return is_its_system and physical_name(config, stream.stream) == stream.stream


def task_inputs(config: Mapping[str, str]) -> list[SystemStream]:
    """`task.inputs` as Samza reads it, in its order, each once.

    Raises:
        ConfigError: an entry without a dot.
    """
    value = config.get("task.inputs", "")
    if not value:
        return []
    return list(dict.fromkeys(system_stream_from_names(name) for name in java_values.split_commas(value)))


def broadcast_inputs(config: Mapping[str, str]) -> list[SystemStreamPartition]:
    """The partitions that every task reads: `task.broadcast.inputs` as Samza reads it, in its order, each once.

    `system.stream#0` or `system.stream#[0-3]`; an inverted range is empty, with a warning. Nothing else of these
    streams is read, unless they are in `task.inputs` too.

    Raises:
        ConfigError: an entry of another form, or a range of more than 100,000 partitions.
    """
    entries = java_values.split_list(config.get("task.broadcast.inputs", "")) or []
    return list(dict.fromkeys(ssp for entry in entries for ssp in _broadcast(entry)))


def all_input_streams(config: Mapping[str, str]) -> list[SystemStream]:
    """Every stream of which the job reads something, sorted (TaskConfig.getAllInputStreams).

    They have to exist. Tasks are made of the partitions of `task_inputs` alone.

    Raises:
        ConfigError: as `task_inputs` and `broadcast_inputs`.
    """
    return sorted({*task_inputs(config), *(ssp.system_stream for ssp in broadcast_inputs(config))})


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
        raise ConfigError(f"task.broadcast.inputs: {entry} has a partition that is too large") from error
    if first > last:
        _log.warning("task.broadcast.inputs: %s begins behind its end, so it adds no partition", entry)
    if last - first >= _MAX_BROADCAST:
        raise ConfigError(
            f"task.broadcast.inputs: {entry} has {last - first + 1} partitions; every task would read them all"
        )
    return [SystemStreamPartition(stream.system, stream.stream, p) for p in range(first, last + 1)]


def _incorrect(entry: str) -> ConfigError:
    return ConfigError(
        f"incorrect format in {entry}. Broadcast stream names should be in the form 'system.stream#partitionId' "
        f"or 'system.stream#[partitionN-partitionM]'"
    )
