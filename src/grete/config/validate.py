"""The whole configuration is checked before anything is written, and every problem is reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.config.keys import KEYS, ChangeClass, find_key
from grete.config.redact import redact_value
from grete.errors import ConfigError

_JOB_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def validate(config: Mapping[str, str]) -> None:
    """Check everything.

    Raises:
        ConfigError: with every problem found, each saying what is wrong and the way out.
    """
    problems = [*_names(config), *_types(config), *_application(config), *_streams(config), *_poison(config)]
    if problems:
        raise ConfigError(*problems)


def _names(config: Mapping[str, str]) -> Iterator[str]:
    if not config.get("job.name"):
        yield "Missing required config: job.name. Set it to the job's name"
    for key in ("job.name", "job.id"):
        value = config.get(key)
        if value and not _JOB_NAME.fullmatch(value):
            yield f"{key}={value!r}: only A-Z a-z 0-9 . _ - are allowed, at most 200 of them"


def _types(config: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(config.items()):
        known = find_key(key)
        if known is not None:
            problem = known.type.problem(value)
            if problem:
                yield f"{key}={redact_value(key, value)!r}: {problem}"


def _application(config: Mapping[str, str]) -> Iterator[str]:
    if ("task.class" in config) == ("app.class" in config):
        yield (
            "set exactly one of task.class (a grete.StreamTask) and app.class (a grete.DataFramePipeline), "
            "each as module:Class"
        )
    if not config.get("task.inputs", "").strip():
        yield "Missing required config: task.inputs. Set it to system.stream[,system.stream]"
    if config.get("job.elasticity.factor", "1") != "1":
        yield "job.elasticity.factor: elasticity is not supported; remove the key"


def _streams(config: Mapping[str, str]) -> Iterator[str]:
    systems = {
        key.split(".")[1] for key in config if key.startswith("systems.") and key.endswith(".samza.factory")
    }
    for key in ("task.inputs", "task.broadcast.inputs", "task.outputs", "task.poison.dead-letter.stream"):
        for name in (part.strip() for part in config.get(key, "").split(",")):
            system, dot, stream = name.partition(".")
            if name and not (dot and system and stream):
                yield f"{key}: {name!r} is not of the form system.stream"
            elif name and system != "local" and system not in systems:
                yield f"{key}: {name!r} names system {system!r}; set systems.{system}.samza.factory"
    for system in sorted(systems):
        factory = config[f"systems.{system}.samza.factory"]
        if factory != "local":
            yield (
                f"systems.{system}.samza.factory={factory!r}: only the embedded system `local` is available in "
                f"this version"
            )


def _poison(config: Mapping[str, str]) -> Iterator[str]:
    if config.get("task.poison.policy") == "dead-letter" and not config.get("task.poison.dead-letter.stream"):
        yield "task.poison.policy=dead-letter needs task.poison.dead-letter.stream=system.stream"


def is_stateful(config: Mapping[str, str]) -> bool:
    """Whether the job has stores."""
    return any(key.startswith("stores.") for key in config)


def refused_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Changes of set-once keys on a stateful job, each with the reason and the way out (S1-23)."""
    if not old or not is_stateful(old):
        return []
    refused = []
    for key in sorted(k for k in {*old, *new} if old.get(k) != new.get(k)):
        known = find_key(key)
        if known is not None and known.change is ChangeClass.SET_ONCE:
            refused.append(
                f"{key} can not change from {old.get(key)!r} to {new.get(key)!r}: the job has state, and this key "
                f"decides which state belongs to which task. Give the job a new job.id, or set it back"
            )
    return refused


def unknown_keys(config: Mapping[str, str]) -> list[str]:
    """Keys in our own name spaces that nothing reads, with the known key they resemble: warnings, not errors."""
    from difflib import get_close_matches

    names = [key.name for key in KEYS if "%s" not in key.name]
    warnings = []
    for key in sorted(config):
        if key.startswith(("job.", "task.", "app.")) and find_key(key) is None:
            close = get_close_matches(key, names, n=1, cutoff=0.85)
            if close:
                warnings.append(f"{key} is not a known key; did you mean {close[0]}?")
    return warnings
