"""Inputs, outputs, state and checkpoints of a job are in one system: they commit in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import aliases, java_values
from grete.config.eventhubs import (
    CHECKPOINTS,
    commits_beside,
    name_within,
    named_changelog_system,
)
from grete.config.settings import Settings
from grete.config.settings.streams import system_stream_from_names
from grete.errors import ConfigError
from grete.model.ids import SystemStream


def one_system_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each problem with the way out; names that are no names are said elsewhere."""
    try:
        inputs = Settings.of(config).task.all_inputs
        outputs = {
            (key, system_stream_from_names(name))
            for key in ("task.outputs", "task.poison.dead-letter.stream")
            for name in java_values.split_commas(config.get(key, ""))
        }
    except ConfigError:
        return
    systems = sorted({stream.system for stream in inputs})
    if len(systems) > 1:
        yield (
            f"task.inputs names the systems {', '.join(systems)}: a job reads from one, where its outputs and "
            f"checkpoints commit; bring the streams into one, or make a job for each system"
        )
    elif systems:
        yield from _outputs(config, systems[0], outputs)
        if Settings.of(config).system(systems[0]).capabilities.keeps_state:
            yield from _logs(config, systems[0])


def _outputs(config: Mapping[str, str], system: str, outputs: set[tuple[str, SystemStream]]) -> Iterator[str]:
    beside = commits_beside(config, system)
    known = repr(system) if beside is None else f"{system!r} and {beside!r}"
    for key, stream in sorted(outputs):
        if name_within(config, system, stream) is None:
            yield (
                f"{key} names {stream}: the job writes to {known} only, since outputs commit with the checkpoints, "
                f"where its inputs are; name a stream of that system, and let another job carry it on"
            )


def _logs(config: Mapping[str, str], system: str) -> Iterator[str]:
    """A job whose checkpoints are elsewhere would begin by `samza.offset.default`, with empty stores."""
    factory = aliases.canonical(aliases.CHECKPOINTS, config.get("task.checkpoint.factory", ""))
    named = config.get(CHECKPOINTS, "").strip()
    places = {CHECKPOINTS: named} if factory in ("", "grete.checkpoint.log") else {}
    places |= {
        f"stores.{store}.changelog": named_changelog_system(store, config) or ""
        for store in Settings.of(config).store_names
    }
    for key, other in places.items():
        if other and brokers_of(config, other) != brokers_of(config, system):
            yield (
                f"{key} is on system {other!r}: checkpoints and changelogs are on that of the inputs, {system!r}, in "
                f"one transaction with the outputs, and are looked for there only. Copy what is there to {system!r} "
                f"with its partitions and keys, and name {system!r}"
            )


def brokers_of(config: Mapping[str, str], system: str) -> frozenset[str] | str:
    """The brokers of a system; its name where none are given. Systems on one cluster share their topics."""
    for client in ("producer", "consumer"):
        servers = config.get(f"systems.{system}.{client}.bootstrap.servers", "").strip()
        if servers:
            return frozenset(server.strip() for server in servers.split(","))
    return system
