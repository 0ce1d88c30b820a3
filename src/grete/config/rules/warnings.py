"""Doubtful settings that do not keep a configuration from being used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grete.config import aliases
from grete.config.choices import PipelineColumns
from grete.config.derived import isolation_problems
from grete.config.kafka_tuning import not_followed
from grete.config.key import Key
from grete.config.key_tables import job
from grete.config.key_tables.task import COMMIT, METRICS_CLASS
from grete.config.keys import ALIKE, KEYS, find_key, nearest_key, section_of
from grete.config.redact import writes_out_secret
from grete.config.settings import Settings
from grete.config.settings.metrics import SNAPSHOT, reporter_names
from grete.config.settings.systems import systems_without_factory
from grete.errors import ConfigError

_POISON = "task.poison."
_STREAM_TASK_ONLY = (_POISON, "task.window.ms", "stores.")
_CLOSED = ("job.", "task.", "app.", "cluster-manager.")
"""Where every name of grete's and Samza's is known; in the others names are also people's."""
_MOST_NAMED = 20
_LESS_ALIKE = 0.7
"""Where a configuration is refused; one that works is warned of likely slips alone."""
_SLOW_COMMIT_MS = 5_000
_MOST_CHECKED = 100
"""Comparing one key with the table takes about 2 ms; 10,000 keys of an application's own must not take 20 s."""


def warnings_of(config: Mapping[str, str]) -> list[str]:
    """Deprecated names, stand-ins, likely slips of the hand, keys without effect, secrets written out."""
    return [
        *_deprecated(config),
        *_fallbacks(config),
        *misspelt_keys(config),
        *_without_effect(config),
        *_slow_commits(config),
        *_of_stream_tasks_only(config),
        *_plain_secrets(config),
        *_launcher(config),
        *isolation_problems(config),
    ]


def _deprecated(config: Mapping[str, str]) -> Iterator[str]:
    for key in KEYS:
        for old in key.renamed_from:
            if old in config and key.name in config:
                yield f"{old} is deprecated and ignored, since {key.name} is set; remove {old}"
            elif old in config:
                yield f"{old} is deprecated; use {key.name}"


def _fallbacks(config: Mapping[str, str]) -> Iterator[str]:
    for key in KEYS:
        if any(name in config for name in (key.name, *key.renamed_from)):
            continue
        for other in key.fallbacks:
            if other in config:
                yield f"{key.name} is not set; {other} stands in. Set {key.name} to say it"


def slips_of(config: Mapping[str, str]) -> dict[str, str]:
    """Keys that nobody knows but that nearly are known ones, with the one that was meant."""
    return _slips(_unknown(config), config)


def _slips(unknown: Sequence[str], config: Mapping[str, str], cutoff: float = ALIKE) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in unknown[:_MOST_CHECKED]:
        meant = nearest_key(key, config, cutoff)
        if meant is not None:
            found[key] = meant
    return found


def misspelt_keys(config: Mapping[str, str], *, is_refused: bool = False) -> Iterator[str]:
    """Keys that nobody knows, with those that may have been meant: also less near ones where `is_refused`."""
    unknown = _unknown(config)
    slips = _slips(unknown, config, _LESS_ALIKE if is_refused else ALIKE)
    yield from (f"{key} is not a known key; did you mean {meant}?" for key, meant in slips.items())
    unread = [key for key in unknown if key not in slips]
    unread_by_grete = [key for key in unread if key.startswith(_CLOSED) and find_key(key) is None]
    if unread_by_grete:
        more = f" and {len(unread_by_grete) - _MOST_NAMED} more" if len(unread_by_grete) > _MOST_NAMED else ""
        yield f"not known, so only the application can read it: {', '.join(unread_by_grete[:_MOST_NAMED])}{more}"


def _unknown(config: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(config) if section_of(key) is not None and _is_unknown(key)]


def _is_unknown(key: str) -> bool:
    """Open families take any name, yet a name in them that nearly is a known one is worth a look."""
    known = find_key(key)
    passed_on = (".consumer.", ".producer.", ".stream.", "job.autosizing.", ".config.", ".changelog.")
    return known is None or (known.is_open and not any(part in key for part in passed_on))


def _without_effect(config: Mapping[str, str]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for name in sorted(config):
        key = find_key(name)
        if key is not None and key.no_effect and not _is_default(key, config[name]):
            found.setdefault(key.no_effect, []).append(name)
    found.update(not_followed(config))
    others = [name for name, kind in reporter_names(config).items() if kind not in (SNAPSHOT, "")]
    if others:
        found.setdefault("see `/metrics`", []).extend(METRICS_CLASS.named(name) for name in others)
    for system in systems_without_factory(config):
        names = [key for key in sorted(config) if key.startswith(f"systems.{system}.")]
        found[f"systems.{system}.samza.factory is not set, so there is no such system"] = names
    for reason, names in found.items():
        yield f"no effect in grete: {', '.join(names)} ({reason})"


def _slow_commits(config: Mapping[str, str]) -> Iterator[str]:
    given = config.get(COMMIT.name, "")
    if given.isdecimal() and int(given) > _SLOW_COMMIT_MS:
        yield (
            f"{COMMIT.name}={given}: outputs of StreamTasks become visible with their commit, so they wait for up to "
            f"{int(given) / 1000:g} s; those of Samza do not wait. Remove the key to commit every {COMMIT.default} ms"
        )


def _of_stream_tasks_only(config: Mapping[str, str]) -> Iterator[str]:
    """A pipeline is all of Spark's: rows that it cannot read, its windows and its state as well."""
    if "app.class" not in config:
        return
    only = [start for start in _STREAM_TASK_ONLY if start != _POISON or not _decodes_inputs(config)]
    names = [name for name in sorted(config) if name.startswith(tuple(only))]
    if names:
        yield (
            f"no effect on a DataFrame pipeline (app.class): {', '.join(names)}; poison messages, windows and stores "
            f"are of StreamTasks (task.class), in a pipeline say them in Spark SQL"
        )


def _decodes_inputs(config: Mapping[str, str]) -> bool:
    """Whether there are records that the serdes of a pipeline may fail to read."""
    settings = Settings.of(config)
    try:
        inputs = settings.task.all_inputs
        return any(settings.stream(one).columns is PipelineColumns.DECODED for one in inputs)
    except ConfigError:
        return False  # another rule says so


def _is_default(key: Key[object], value: str) -> bool:
    return value == key.default


def _plain_secrets(config: Mapping[str, str]) -> Iterator[str]:
    names = [key for key in sorted(config) if writes_out_secret(key, config[key])]
    if names:
        yield (
            f"written out in plain text, and so kept in the coordinator stream: {', '.join(names)}. "
            f"Write ${{env:NAME}} or ${{file:/path}} instead: an application finds the value in context.config, and "
            f"containers have the variable from their coordinator"
        )


def _launcher(config: Mapping[str, str]) -> Iterator[str]:
    factory = config.get(job.FACTORY.name, "")
    wanted = aliases.canonical(aliases.LAUNCHERS, factory)
    if factory and job.LAUNCHER.name not in config and job.LAUNCHER.type.problem(wanted):
        yield (
            f"{job.FACTORY.name}={factory!r} has no launcher here, so containers are processes of this machine; "
            f"set {job.LAUNCHER.name} to say it, and spark.master to run their executors on a cluster"
        )
