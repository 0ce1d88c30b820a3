"""Keys that grete derives from the submitted ones, so that everything behind them reads one name of a thing.

- `canonical_keys`: current names beside deprecated ones, and derived values written out.
- `with_derived_keys`: `job.name` from `app.name`, and `isolation.level=read_committed`. grete's appends are
  transactions, and without that key Samza's consumers show records of aborted ones as written. They take it from the
  job's configuration in the coordinator stream, so every Kafka system that holds logs of the job has it there.
- `dev_overrides`: what `grete run --dev` sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from grete.config import aliases
from grete.config.key_tables import autosizing, coordinator, job, task
from grete.config.keys import KEYS
from grete.config.settings import Settings
from grete.errors import ConfigError

READ_COMMITTED = "read_committed"


def canonical_keys(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with today's names beside the deprecated ones, and what is derived written out.

    - A deprecated name gives its value to today's name where that is not set (S2-53), a stand-in likewise (S2-54,
      S2-55). The old entry stays, since real Samza may read the same stream.
    - `job.container.count` is autosizing's, where that is enabled.
    - `task.poison.dead-letter.stream` is the job's own where Samza's keys put messages aside and none is named.
    - `job.coordinator.system` is the one in force (S2-52), `job.launcher` what `job.factory.class` stands for.

    Applying it twice changes nothing more. Warnings come from `validate`, which wants the configuration from before.
    """
    result = dict(config)
    for key in KEYS:
        if key.name not in result:
            old = next((name for name in (*key.renamed_from, *key.fallbacks) if name in result), None)
            if old is not None:
                result[key.name] = result[old]
    if (
        result.get(autosizing.AUTOSIZING.name, "").lower() == "true"
        and autosizing.AUTOSIZING_COUNT.name in result
    ):
        result[job.CONTAINER_COUNT.name] = result[autosizing.AUTOSIZING_COUNT.name]
    launcher = aliases.canonical(aliases.LAUNCHERS, result.get(job.FACTORY.name, ""))
    if job.LAUNCHER.name not in result and not job.LAUNCHER.type.problem(launcher):
        result[job.LAUNCHER.name] = launcher
    with suppress(ConfigError):  # validation says so
        letters = Settings.of(result).task.dead_letters
        if letters is not None:
            result.setdefault(task.DEAD_LETTERS.name, str(letters))
    with suppress(ConfigError):  # several systems and none named: validation says so with everything else
        result.setdefault(coordinator.SYSTEM.name, Settings.of(result).coordinator.system)
    return result


def with_autosizing_results(submitted: Settings, in_force: Settings) -> Settings:
    """The submitted settings and, while they have autosizing on, the `job.autosizing.*` in force that they leave out.

    But for its rule, which people set. An autosizer writes them into the stream, and a file that is submitted again
    knows nothing of them
    (CoordinatorStreamUtil.writeConfigToCoordinatorStream). In canonical keys.
    """
    if not submitted.job.is_autosizing:
        return submitted
    own = {key.name for key in autosizing.RULE}
    results = {k: v for k, v in in_force.raw.items() if k.startswith("job.autosizing") and k not in own}
    return Settings.of(canonical_keys({**results, **submitted.raw}))


def with_derived_keys(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with `job.name` and `job.id` from `app.name` and `app.id`, and with `isolation.level`.

    `app.*` wins where both are set, as in Samza's planner. What is set already is not changed otherwise. Applying it
    twice changes nothing more.
    """
    result = dict(config)
    for newer, key in ((job.APP_NAME, job.JOB_NAME), (job.APP_ID, job.JOB_ID)):
        if result.get(newer.name, "").strip():
            result[key.name] = result[newer.name]
    for system in kafka_systems_of_logs(result):
        result.setdefault(isolation_key(system), READ_COMMITTED)
    return result


def isolation_key(system: str) -> str:
    """The key by which Samza's consumers of a system skip records of aborted transactions."""
    return f"systems.{system}.consumer.isolation.level"


def kafka_systems_of_logs(config: Mapping[str, str]) -> list[str]:
    """The Kafka systems on which the coordinator stream, the checkpoints or a changelog live, sorted."""
    settings = Settings.of(config)
    try:
        of_coordinator = settings.coordinator.system
    except ConfigError:
        of_coordinator = ""  # several systems and none named: validation says so
    checkpoints = settings.task.checkpoint_system or of_coordinator
    changelogs = {settings.store(store).changelog_system or of_coordinator for store in settings.store_names}
    wanted = {of_coordinator, checkpoints} | changelogs
    return [
        system
        for system in settings.system_names
        if system in wanted and settings.system(system).capabilities.kafka_topics
    ]


def isolation_problems(config: Mapping[str, str]) -> Iterator[str]:
    """A system of logs whose readers are configured otherwise."""
    for system in kafka_systems_of_logs(config):
        key = isolation_key(system)
        level = config.get(key, READ_COMMITTED).strip()
        if level != READ_COMMITTED:
            yield (
                f"{key}={level!r}: Samza's consumers would take records of aborted appends for written ones, and the "
                f"aborted value would win; set it to {READ_COMMITTED}, or remove it"
            )


def dev_overrides(config: Mapping[str, str]) -> dict[str, str]:
    """One copy of every topic whose number of copies is not set: a development machine has one broker.

    Empty when all systems are embedded, which keep no copies.
    """
    settings = Settings.of(config)
    elsewhere = [name for name in settings.system_names if not settings.system(name).is_embedded]
    if not elsewhere:
        return {}
    names = [coordinator.REPLICATION.name, "task.checkpoint.replication.factor"]
    names += [f"stores.{store}.changelog.replication.factor" for store in settings.store_names]
    names += [f"systems.{name}.default.stream.replication.factor" for name in elsewhere]
    return dict.fromkeys((name for name in names if name not in config), "1")
