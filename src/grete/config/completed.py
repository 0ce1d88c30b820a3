"""What grete adds to a submitted configuration: Samza's newer names of a job, and what Samza's readers must know.

grete's appends are transactions. Samza's consumers show a record of an aborted one as if it had been written, unless
they are told `isolation.level=read_committed`; they take that from the job's configuration, which they read from the
coordinator stream. So the key is in the configuration of every Kafka system that holds logs of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.settings import Settings
from grete.errors import ConfigError

_NAMES = (("app.name", "job.name"), ("app.id", "job.id"))
READ_COMMITTED = "read_committed"


def completed(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with `job.name` and `job.id` from `app.name` and `app.id`, and with `isolation.level`.

    `app.*` wins where both are set, as in Samza's planner. What is set already is not changed otherwise. Applying it
    twice changes nothing more.
    """
    result = dict(config)
    for name, job_name in _NAMES:
        if result.get(name, "").strip():
            result[job_name] = result[name]
    for system in kafka_systems_of_logs(result):
        result.setdefault(isolation_key(system), READ_COMMITTED)
    return result


def isolation_key(system: str) -> str:
    """The key that tells Samza's consumers of a system which records count."""
    return f"systems.{system}.consumer.isolation.level"


def kafka_systems_of_logs(config: Mapping[str, str]) -> list[str]:
    """The Kafka systems on which the coordinator stream, the checkpoints or a changelog live, sorted."""
    settings = Settings.of(config)
    try:
        coordinator = settings.coordinator.system
    except ConfigError:
        coordinator = ""  # several systems and none named: validation says so
    checkpoints = config.get("task.checkpoint.system") or coordinator
    changelogs = {settings.store(store).changelog_system or coordinator for store in settings.store_names}
    wanted = {coordinator, checkpoints} | changelogs
    return [
        system
        for system in settings.system_names
        if system in wanted and settings.system(system).capabilities.kafka_topics
    ]


def isolation_problems(config: Mapping[str, str]) -> Iterator[str]:
    """A system of logs whose readers are told something else."""
    for system in kafka_systems_of_logs(config):
        key = isolation_key(system)
        level = config.get(key, READ_COMMITTED).strip()
        if level != READ_COMMITTED:
            yield (
                f"{key}={level!r}: Samza's consumers would take records of aborted appends for written ones, and the "
                f"aborted value would win; set it to {READ_COMMITTED}, or remove it"
            )
