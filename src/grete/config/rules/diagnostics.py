"""What a configuration names for logs, diagnostics, metrics and traces has to be able to take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import aliases, system_types
from grete.config.key_tables import job, task
from grete.config.settings import Settings
from grete.config.settings.metrics import snapshot_reporters
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.errors import ConfigError, WireError
from grete.suggestions import did_you_mean


def diagnostics_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each problem with the way out."""
    system = config.get(task.LOG_SYSTEM.name, "").strip()
    if system:
        yield from _cannot_take_them(config, task.LOG_SYSTEM.name, system)
    yield from _metrics(config)
    yield from _traces(config)
    if config.get(job.DIAGNOSTICS.name, "").strip().lower() != "true":
        return
    key = task.DIAGNOSTICS_STREAM.name
    name = config.get(key, "")
    if not name.strip():
        yield f"Missing required config: {key}. {job.DIAGNOSTICS.name}=true needs it; set it to system.stream"
        return
    system, dot, stream = name.partition(".")
    if not (system and dot and stream):
        yield f"{key}={name!r}: it is not of the form system.stream; write both"
    else:
        yield from _cannot_take_them(config, key, system)
    yield from _is_of_the_job(config, key, name.strip())


def _metrics(config: Mapping[str, str]) -> Iterator[str]:
    try:
        reporters = snapshot_reporters(config)
    except (ConfigError, WireError) as error:
        yield str(error)
        return
    for reporter in reporters:
        key = task.METRICS_STREAM.named(reporter.name)
        yield from _cannot_take_them(config, key, reporter.stream.system)
        yield from _is_of_the_job(config, key, str(reporter.stream))


def _traces(config: Mapping[str, str]) -> Iterator[str]:
    if job.TRACES_ENDPOINT.name in config:
        try:
            _ = Settings.of(config).traces.url
        except ConfigError as error:
            yield str(error)


def _is_of_the_job(config: Mapping[str, str], key: str, name: str) -> Iterator[str]:
    if name in _streams_of_the_job(config):
        yield (
            f"{key}={name}: the job reads or writes this stream itself; name another one, since diagnostics and "
            f"metrics are no messages of it, and are dropped when they are old"
        )


def _streams_of_the_job(config: Mapping[str, str]) -> set[str]:
    keys = ("task.inputs", "task.outputs", "task.broadcast.inputs", "task.poison.dead-letter.stream")
    return {name.strip().partition("#")[0] for key in keys for name in config.get(key, "").split(",")}


def _cannot_take_them(config: Mapping[str, str], key: str, system: str) -> Iterator[str]:
    factory_key = f"systems.{system}.samza.factory"
    factory = config.get(factory_key)
    if factory is None:
        if system != EMBEDDED_SYSTEM:
            meant = did_you_mean(system, (EMBEDDED_SYSTEM, *Settings.of(config).system_names))
            yield f"{key} names the system {system!r}, which is not configured{meant}; set {factory_key}"
        return
    found = system_types.find_type(aliases.canonical(aliases.SYSTEMS, factory))
    if found is None or found.log_sink is None:
        yield (
            f"{key} names the system {system!r}: logs, diagnostics and metrics go to embedded systems and to Kafka; "
            f"name one, such as {EMBEDDED_SYSTEM!r}, or remove the key"
        )
