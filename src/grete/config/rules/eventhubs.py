"""Rules of jobs on Azure Event Hubs: it has no transactions and no compaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.key_tables.coordinator import SYSTEM
from grete.config.key_tables.task import CHECKPOINT_SYSTEM
from grete.config.settings import Settings
from grete.config.settings.eventhubs import HubsSettings
from grete.errors import ConfigError

_KIND = "eventhubs"


def eventhubs_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each setting that Event Hubs cannot serve, with the way out; and missing keys of its streams."""
    settings = Settings.of(config)
    for system in settings.system_names:
        if settings.system(system).kind == _KIND:
            hubs = HubsSettings(config, system)
            yield from _coordinator_problems(settings, system)
            yield from _input_problems(settings, system)
            for stream in sorted(hubs.used_streams()):
                yield from hubs.problems(stream)


def _coordinator_problems(settings: Settings, system: str) -> Iterator[str]:
    try:
        if settings.coordinator.system != system:
            return
    except ConfigError:
        return  # several systems and none named: another rule says so
    yield (
        f"the coordinator stream cannot live on Event Hubs (system {system!r}): it needs a compacted topic and "
        f"transactions. Set {SYSTEM.name} to a Kafka system, or to local for the embedded SQLite log"
    )


def _input_problems(settings: Settings, system: str) -> Iterator[str]:
    try:
        if all(stream.system != system for stream in settings.task.all_inputs):
            return
    except ConfigError:
        return  # of another form than system.stream: another rule says so
    named = settings.task.checkpoint_system
    if not named or not settings.system(named).capabilities.keeps_state:
        yield (
            f"{CHECKPOINT_SYSTEM.name}={named!r}: Event Hubs (system {system!r}) has no transactions and no "
            f"compaction, so checkpoints and changelogs of a job that reads from it live in another "
            f"system; name a Kafka system or local, the embedded one"
        )
        return
    for store in settings.store_names:
        where = settings.store(store).named_changelog_system
        if where is not None and where != named:
            yield (
                f"stores.{store}.changelog is on system {where!r} and the checkpoints are on {named!r}: state and "
                f"checkpoint are committed together, so name {CHECKPOINT_SYSTEM.name} in "
                f"stores.{store}.changelog, or no system"
            )
