"""A configuration in today's words: what the rest of grete reads without knowing of old names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from grete.config import aliases
from grete.config.key_tables import coordinator, job, task
from grete.config.keys import KEYS
from grete.config.settings import Settings
from grete.errors import ConfigError


def in_current_words(config: Mapping[str, str]) -> dict[str, str]:
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
    if result.get(job.AUTOSIZING.name, "").lower() == "true" and job.AUTOSIZING_COUNT.name in result:
        result[job.CONTAINER_COUNT.name] = result[job.AUTOSIZING_COUNT.name]
    launcher = aliases.canonical(aliases.LAUNCHERS, result.get(job.FACTORY.name, ""))
    if job.LAUNCHER.name not in result and not job.LAUNCHER.type.problem(launcher):
        result[job.LAUNCHER.name] = launcher
    with suppress(ConfigError):  # validation says so
        letters = Settings.of(result).task.dead_letters
        if letters is not None:
            result.setdefault(task.DEAD_LETTERS.name, str(letters))
    if coordinator.SYSTEM.name not in result:
        try:
            result[coordinator.SYSTEM.name] = Settings.of(result).coordinator.system
        except ConfigError:
            return result  # several systems and none named: validation says so together with everything else
    return result


def with_autosizing_results(submitted: Mapping[str, str], in_force: Mapping[str, str]) -> dict[str, str]:
    """What is submitted and, while it has autosizing on, the `job.autosizing.*` keys in force that it leaves out.

    An autosizer writes them into the stream, and a file that is submitted again knows nothing of them
    (CoordinatorStreamUtil.writeConfigToCoordinatorStream). In today's words.
    """
    if submitted.get(job.AUTOSIZING.name, "").lower() != "true":
        return dict(submitted)
    results = {key: value for key, value in in_force.items() if key.startswith("job.autosizing")}
    return in_current_words({**results, **submitted})
