"""The whole configuration is checked before anything is written, and every problem is reported at once.

Errors keep a configuration from being used; warnings do not. A message names the key, shows its value (masked if it
is a secret), and says what is wrong and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from grete.config import aliases, java_values
from grete.config.java_regex import compile_java
from grete.config.kafka_tuning import tuning_problems
from grete.config.key import TEXT, Key
from grete.config.key_tables.job import ELASTICITY, SSP_GROUPER
from grete.config.key_tables.task import POISON_POLICY
from grete.config.keys import find_key
from grete.config.redact import Redactor, redact_value
from grete.config.rewriters import rewriter_names
from grete.config.rules.consumer_group import consumer_group_problems
from grete.config.rules.diagnostics import diagnostics_problems
from grete.config.rules.eventhubs import eventhubs_problems
from grete.config.rules.executors import executor_problems
from grete.config.rules.http_server import http_server_problems
from grete.config.rules.one_system import one_system_problems
from grete.config.rules.outputs import output_problems
from grete.config.rules.processors import processor_problems
from grete.config.rules.services import azure_problems, zookeeper_problems
from grete.config.rules.stream_names import stream_name_problems
from grete.config.rules.unsupported import unsupported
from grete.config.rules.warnings import misspelt_keys, warnings_of
from grete.config.secrets import has_reference
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.config.settings.streams import (
    stream_id_of,
    stream_ids,
    stream_system,
    system_stream_from_names,
)
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.config.values import valid_value_of
from grete.errors import ConfigError, WireError
from grete.registry import known_plugins, ways_to_name
from grete.suggestions import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MOST_BUCKETS = 1_000
_GROUPERS_OF_BUCKETS = ("GroupByPartitionFactory", "GroupBySystemStreamPartitionFactory")
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The findings of a check. The configuration can be used when there are no errors."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def check(config: Mapping[str, str]) -> ValidationReport:
    """Everything that is wrong or looks wrong with a configuration."""
    hide = Redactor.of(config)
    errors = [hide.everything(problem) for rule in _RULES for problem in rule(config)]
    return ValidationReport(tuple(dict.fromkeys(errors)), tuple(warnings_of(config)))


def validate(config: Mapping[str, str]) -> tuple[str, ...]:
    """Check everything; returns the warnings.

    Raises:
        ConfigError: with every problem found, each saying what is wrong and the way out, and with the keys that are
            not known: what is missing may be one of these.
    """
    report = check(config)
    if report.errors:
        raise ConfigError(*report.errors, *misspelt_keys(config, is_refused=True))
    return report.warnings


def _wrong(config: Mapping[str, str], key: str, problem: str) -> str:
    return f"{key}={redact_value(key, config.get(key, ''))!r}: {problem}"


# --- each key by itself ---


def _texts(config: Mapping[str, str]) -> Iterator[str]:
    for key, value in config.items():
        if not key or key != key.strip() or _UNPRINTABLE.search(key):
            yield f"the key {key!r} is empty, has blanks around it or holds a control character; remove it"
        if _NO_TEXT.search(value):
            yield f"{key}: the value holds a NUL or half a surrogate pair, which is no text; remove it"


def _identity(config: Mapping[str, str]) -> Iterator[str]:
    if not config.get("job.name"):
        yield "Missing required config: job.name. Set it to the job's name"
    for key in ("job.name", "job.id"):
        value = config.get(key)
        if value == "" and key == "job.id":
            yield _wrong(config, key, "it is empty; set it, or remove it to have 1")
        if value and not _NAME.fullmatch(value):
            yield _wrong(config, key, "only A-Z a-z 0-9 . _ - are allowed, at most 200 of them")


def _types(config: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(config.items()):
        known = find_key(key)
        if known is None or known.is_open:
            continue
        if known.type is not TEXT and has_reference(value):
            yield _wrong(config, key, "a reference stands for a secret text; write the value itself")
            continue
        problem = known.type.problem(value)
        if problem:
            yield _wrong(config, key, problem)
        yield from _name_of_plugin(config, key, value, known)


def _name_of_plugin(config: Mapping[str, str], key: str, value: str, known: Key[object]) -> Iterator[str]:
    """Values that name an implementation: one of ours, one of Samza's we have an alias of, an installed plug-in."""
    group = known.aliases
    if not group or group in (aliases.REWRITERS, aliases.SERDES, aliases.SYSTEMS):
        return  # rewriters are loaded by name already; serdes and systems have rules of their own below
    names = [*aliases.known_names(group), *_plugins(group)]
    if group == aliases.LAUNCHERS and not value.strip():
        yield "no job factory class defined: job.factory.class is empty; remove it, or set job.launcher"
    elif aliases.canonical(group, value) not in names and not (
        group == aliases.SSP_GROUPERS and ":" in value
    ):
        ways = ways_to_name(group, value, accepts_classes=group == aliases.SSP_GROUPERS)
        those = f"{did_you_mean(value, names)}; known are {', '.join(names)} and Samza's names for them"
        problem = f"it is not known{those}. {ways}"
        yield _wrong(config, key, problem)


def _plugins(group: str) -> list[str]:
    """Stores are files of this machine that changelogs rebuild: of these alone there are no plug-ins."""
    return [] if group == aliases.STORES else sorted(known_plugins(group))


def _numbers(config: Mapping[str, str]) -> Iterator[str]:
    factor = valid_value_of(config, ELASTICITY)
    if factor == 1:
        return
    if factor is not None and not 1 <= factor <= _MOST_BUCKETS:
        yield _wrong(config, ELASTICITY.name, f"a partition has 1 to {_MOST_BUCKETS} tasks")
    if "app.class" in config:
        yield _wrong(
            config, ELASTICITY.name, "Spark divides the work of a DataFrame pipeline; remove the key"
        )
    grouper = aliases.canonical(aliases.SSP_GROUPERS, config.get(SSP_GROUPER.name, ""))
    if grouper and grouper not in _GROUPERS_OF_BUCKETS:
        yield _wrong(
            config,
            ELASTICITY.name,
            f"{SSP_GROUPER.name}={grouper} makes no buckets of keys; leave one of the two out",
        )


# --- keys that belong together ---


def _application(config: Mapping[str, str]) -> Iterator[str]:
    if ("task.class" in config) == ("app.class" in config):
        yield (
            "set exactly one of task.class (a grete.StreamTask) and app.class (a grete.DataFramePipeline), "
            "each as module:Class"
        )
    if not config.get("task.inputs", "").strip():
        yield from _no_inputs(config)


def _no_inputs(config: Mapping[str, str]) -> Iterator[str]:
    prefixes = [f"job.config.rewriter.{name}." for name in rewriter_names(config)]
    asked = [(config.get(f"{one}regex"), config.get(f"{one}system")) for one in prefixes]
    regexes = [
        f"the regex {regex!r} matches no stream of {system!r}" for regex, system in asked if regex and system
    ]
    if regexes:
        yield (
            f"task.inputs is empty: {'; '.join(regexes)}. Create one that matches, or set task.inputs: while "
            f"a job runs, it takes in what appears"
        )
    else:
        yield (
            "Missing required config: task.inputs. Set it to system.stream[,system.stream], or let the task's class "
            "say it in describe"
        )


def _streams(config: Mapping[str, str]) -> Iterator[str]:
    sides = [f"stores.{store}.side.inputs" for store in Settings.of(config).store_names]
    for key in ("task.inputs", "task.outputs", "task.poison.dead-letter.stream", *sides):
        for name in java_values.split_commas(config.get(key, "")):
            system, dot, stream = name.partition(".")
            of_id = None if dot or key not in sides else stream_system(config, name)
            if of_id:
                yield from _system(config, key, of_id)
            elif not (dot and system and stream):
                yield f"{key}: {name!r} is not of the form system.stream; write both"
            else:
                yield from _system(config, key, system)
    try:
        for system in sorted({ssp.system for ssp in Settings.of(config).task.broadcast_inputs}):
            yield from _system(config, "task.broadcast.inputs", system)
    except ConfigError as error:
        yield f"task.broadcast.inputs: {error}"
    yield from _letters_that_come_back(config)
    puts_aside = valid_value_of(config, POISON_POLICY) == "dead-letter"
    if puts_aside and not config.get("task.poison.dead-letter.stream"):
        yield "task.poison.policy=dead-letter needs task.poison.dead-letter.stream=system.stream"


def _letters_that_come_back(config: Mapping[str, str]) -> Iterator[str]:
    """A letter that is read as a message is set aside again, in a letter that holds it: 467 MB in twelve seconds."""
    with suppress(ConfigError):  # named above
        task = Settings.of(config).task
        if task.dead_letters is not None and task.dead_letters in task.all_inputs:
            yield (
                f"{task.dead_letters} is an input and the stream of dead letters: each letter would be set aside "
                f"again, for ever. Name another one in task.poison.dead-letter.stream"
            )


def _system(config: Mapping[str, str], key: str, system: str) -> Iterator[str]:
    if system != EMBEDDED_SYSTEM and system not in Settings.of(config).system_names:
        meant = did_you_mean(system, (EMBEDDED_SYSTEM, *Settings.of(config).system_names))
        yield (
            f"{key} names the system {system!r}, which is not configured{meant}; set systems.{system}.samza.factory"
        )


def _systems(config: Mapping[str, str]) -> Iterator[str]:
    settings = Settings.of(config)
    available = (*aliases.known_names(aliases.SYSTEMS), *sorted(known_plugins(aliases.SYSTEMS)))
    for system in settings.system_names:
        key = f"systems.{system}.samza.factory"
        factory = aliases.canonical(aliases.SYSTEMS, config[key])
        if factory in available:
            continue
        ways = ways_to_name(aliases.SYSTEMS, factory, accepts_classes=False)
        known = f"{did_you_mean(factory, available)}; known are {', '.join(available)}"
        yield _wrong(config, key, f"this kind of system is not known{known}. {ways}")
    for key in (
        "job.coordinator.system",
        "job.default.system",
        "job.changelog.system",
        "task.checkpoint.system",
    ):
        if config.get(key):
            yield from _system(config, key, config[key])
    yield from _ids_of_streams(config)
    for stream in stream_ids(config):
        key = f"streams.{stream}.samza.system"
        if config.get(key):
            yield from _system(config, key, config[key])
    try:
        _ = settings.coordinator.system
    except ConfigError as error:
        yield str(error)


def _ids_of_streams(config: Mapping[str, str]) -> Iterator[str]:
    """Streams that the job reads or writes and that several ids are mapped to."""
    named = (
        name
        for key in ("task.inputs", "task.outputs")
        for name in java_values.split_commas(config.get(key, ""))
    )
    for name in sorted({name for name in named if "." in name}):
        try:
            stream_id_of(config, system_stream_from_names(name))
        except ConfigError as error:
            yield str(error)


def _stores(config: Mapping[str, str]) -> Iterator[str]:
    settings = Settings.of(config)
    job = JobSettings(config).written_id
    taken: dict[tuple[str | None, str], str] = {}
    for store in settings.store_names:
        if not _NAME.fullmatch(store):
            yield f"stores.{store}: a store's name has only A-Z a-z 0-9 _ -; rename it"
        try:
            stream = settings.store(store).changelog_stream(job)
        except WireError as error:
            yield _wrong(config, f"stores.{store}.changelog", f"{error}")
            continue
        system = settings.store(store).changelog_system
        if system is not None:
            yield from _system(config, f"stores.{store}.changelog", system)
        other = taken.setdefault((system, stream), store)
        if other != store:
            yield (
                f"stores.{store}.changelog: {stream!r} is the changelog of the store {other!r}, and each would be "
                f"restored with what both wrote. Samza 1.1 and later refuse it too; name another stream"
            )


def _checkpoints(config: Mapping[str, str]) -> Iterator[str]:
    factory = aliases.canonical(aliases.CHECKPOINTS, config.get("task.checkpoint.factory", ""))
    if factory == "grete.checkpoint.file-system" and not config.get("task.checkpoint.path"):
        yield (
            "Missing required config: task.checkpoint.path. Set it to the folder of the checkpoint files, or remove "
            "task.checkpoint.factory to keep checkpoints in the checkpoint log"
        )


def _serdes(config: Mapping[str, str]) -> Iterator[str]:
    built_in = aliases.known_names(aliases.SERDES)
    for key, value in sorted(config.items()):
        if not key.endswith((".key.serde", ".msg.serde")) or find_key(key) is None:
            continue
        registered = f"serializers.registry.{value}.class"
        if value in built_in or registered in config or ":" in value:
            continue
        if aliases.canonical(aliases.SERDES, value) in built_in:
            continue
        yield _wrong(
            config,
            key,
            f"no serde of that name ({', '.join(built_in)}) and none registered{did_you_mean(value, built_in)}; set "
            f"{registered}",
        )


def _regexes(config: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(config.items()):
        is_regex = key.startswith("job.config.rewriter.") and key.endswith(".regex") and key.count(".") == 4
        if is_regex or key == "job.systemstreampartition.matcher.config.regex":
            try:
                compile_java(value, used_by=key)
            except ConfigError as error:
                yield str(error)


_RULES: tuple[Callable[[Mapping[str, str]], Iterator[str]], ...] = (
    unsupported,
    _texts,
    _identity,
    _types,
    _numbers,
    _application,
    _streams,
    stream_name_problems,
    _systems,
    _stores,
    output_problems,
    _checkpoints,
    _serdes,
    _regexes,
    diagnostics_problems,
    executor_problems,
    processor_problems,
    http_server_problems,
    one_system_problems,
    azure_problems,
    eventhubs_problems,
    consumer_group_problems,
    tuning_problems,
    zookeeper_problems,
)
