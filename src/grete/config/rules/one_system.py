"""State and checkpoints of a job are in one system, where they commit in one transaction: that of its inputs, or of
several the one that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import java_values
from grete.config.key_tables.task import CHECKPOINT_FACTORY, CHECKPOINT_SYSTEM, DEAD_LETTERS, OUTPUTS
from grete.config.settings import Settings
from grete.config.settings.streams import system_stream_from_names
from grete.config.settings.systems import ELSEWHERE, SystemSettings
from grete.errors import ConfigError
from grete.model.ids import SystemStream


def one_system_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each problem with the way out; names that are no names are said elsewhere."""
    settings = Settings.of(config)
    try:
        inputs = settings.task.all_inputs
        outputs = {
            (key, system_stream_from_names(name))
            for key in (OUTPUTS.name, DEAD_LETTERS.name)
            for name in java_values.split_commas(config.get(key, ""))
        }
    except ConfigError:
        return
    systems = sorted({stream.system for stream in inputs})
    if settings.job.is_pipeline:
        yield from _of_a_pipeline(settings, systems, outputs)
    elif systems:
        yield from _checkpoints_of_several(settings, systems)
        system = settings.system(settings.task.commit_system)
        if system.is_known:
            yield from _outputs(system, outputs)
            if system.capabilities.keeps_state:
                yield from _logs(settings, system)


def _checkpoints_of_several(settings: Settings, systems: list[str]) -> Iterator[str]:
    """Of several systems one has the checkpoints, and with them state and the outputs that are there once."""
    keeping = [name for name in systems if settings.system(name).capabilities.keeps_state]
    if len(systems) > 1 and keeping and settings.task.checkpoint_system not in keeping:
        of_stores = "".join(f" and stores.{store}.side.inputs" for store in settings.side_inputs)
        yield (
            f"task.inputs{of_stores} names the systems {', '.join(systems)}: say in which of them the checkpoints "
            f"are by {CHECKPOINT_SYSTEM.name}, and do not change it later, since they are looked for there only"
        )


def _of_a_pipeline(
    settings: Settings, systems: list[str], outputs: set[tuple[str, SystemStream]]
) -> Iterator[str]:
    """A pipeline reads any systems, and has one in which its checkpoints are; its outputs are Spark's to write."""
    yield from _checkpoints_of_several(settings, systems)
    own = settings.task.commit_system
    for key, stream in sorted(outputs):
        if stream.system != own and not settings.system(stream.system).capabilities.spark_connector:
            yield (
                f"{key} names {stream}: a pipeline writes to {own!r}, where its checkpoints are, to Kafka, Event "
                f"Hubs and outputs.NAME.*; name a stream of those"
            )
    for name in systems if len(systems) == 1 else ():
        system = settings.system(name)
        if system.is_known and system.capabilities.keeps_state:
            yield from _logs(settings, system)


def _outputs(system: SystemSettings, outputs: set[tuple[str, SystemStream]]) -> Iterator[str]:
    beside = system.commits_beside
    known = repr(system.name) if beside is None else f"{system.name!r} and {beside!r}"
    for key, stream in sorted(outputs):
        name = system.name_of(stream)
        if name is None or (key == DEAD_LETTERS.name and ELSEWHERE in name):
            yield (
                f"{key} names {stream}: it is written to {known} only, since it commits with the checkpoints, "
                f"where the inputs are; name a stream of that system, and let another job carry it on"
            )


def _logs(settings: Settings, system: SystemSettings) -> Iterator[str]:
    """A job whose checkpoints are elsewhere would begin by `samza.offset.default`, with empty stores."""
    is_log = settings.task.checkpoint_store in ("", CHECKPOINT_FACTORY.default)
    places = {CHECKPOINT_SYSTEM.name: settings.task.checkpoint_system} if is_log else {}
    places |= {
        f"stores.{store}.changelog": settings.store(store).named_changelog_system or ""
        for store in settings.store_names
    }
    for key, other in places.items():
        if other and settings.system(other).brokers != system.brokers:
            yield (
                f"{key} is on system {other!r}: checkpoints and changelogs are on that of the inputs, "
                f"{system.name!r}, in one transaction with the outputs, and are looked for there only. Copy what is "
                f"there to {system.name!r} with its partitions and keys, and name {system.name!r}"
            )
