"""Config rewriters: applied once, at submit, in the order in which they are listed (S2-50, S2-51).

Samza moved them from the runner to the coordinator and back (SAMZA-793). Here `grete run --config` applies them
before the configuration is validated and written; a coordinator that starts from its stream finds them applied and
never applies them again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from grete.application.plugins import checked_config, rewriter_of
from grete.config import aliases, java_values
from grete.config.application_classes import ask_application
from grete.config.derived import with_derived_keys
from grete.config.described import with_description
from grete.config.java_regex import compile_java
from grete.config.key_tables.job import (
    REWRITER_CLASS,
    REWRITER_CONFIG,
    REWRITER_REGEX,
    REWRITER_SYSTEM,
    REWRITERS,
)
from grete.config.redact import redact_value
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.registry import is_class_of_application, load_object

_log = logging.getLogger(__name__)
_REGEX_INPUT = "regex-input"
_INTERNAL = "__"

StreamLister = Callable[[str, Settings], Iterable[str]]
"""Names of the streams that a system has now: (system, settings) -> names."""


class ConfigRewriter(Protocol):
    """Turns a configuration into another. `name` is the rewriter's name in `job.config.rewriters`.

    Made without arguments, once. What it returns is the whole configuration, not only the changes.
    """

    def rewrite(self, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
        """The new configuration. The old one is not changed."""


def apply_rewriters(
    config: Mapping[str, str],
    *,
    list_streams: StreamLister | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Apply every rewriter of `job.config.rewriters` to the result of the one before, each once; then complete it.

    A task's class is asked what it describes where no inputs are named then.

    `list_streams` serves the built-in `regex-input`, `environment` (this process's by default) `environment`.

    Raises:
        ConfigError: a rewriter has no class, cannot be loaded, or returns something else than strings.
    """
    result = dict(config)
    for name in rewriter_names(config):
        result = _rewritten(name, result, list_streams, environment)
    return with_derived_keys(with_description(result))


def with_new_inputs(config: Mapping[str, str], *, list_streams: StreamLister) -> dict[str, str]:
    """The configuration with the streams that its `regex-input` rewriters choose now; no other rewriter is applied.

    For a job that runs: what else was rewritten is in its configuration already.

    Raises:
        ConfigError: a regex cannot be used.
    """
    result = dict(config)
    for name in regex_rewriters(config):
        result = RegexInputRewriter(list_streams).rewrite(name, result)
    return result


@dataclass(frozen=True, slots=True)
class InputRegex:
    """A system and the pattern by which a rewriter chooses its streams; the whole name must match.

    `left_out` are streams that the job writes itself.
    """

    system: str
    pattern: re.Pattern[str]
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, config: Mapping[str, str]) -> InputRegex:
        """`job.config.rewriter.<name>.regex` and `.system`.

        Raises:
            ConfigError: one of them is not set, or the regex cannot be used.
        """
        for key in (REWRITER_REGEX.named(name), REWRITER_SYSTEM.named(name)):
            if key not in config:
                raise ConfigError(f"No {key} defined in config; the rewriter {name} needs it")
        system, key = config[REWRITER_SYSTEM.named(name)], REWRITER_REGEX.named(name)
        return cls(
            system, compile_java(config[key], used_by=key), frozenset(Settings.of(config).own_streams(system))
        )

    def chooses(self, name: str) -> bool:
        """Whether a stream of the system becomes an input.

        Streams whose names begin with two underscores hold what jobs remember (coordinator streams, checkpoints,
        fences): a pattern chooses them only when it begins so as well.
        """
        is_internal = name.startswith(_INTERNAL) and not self.pattern.pattern.startswith(_INTERNAL)
        return name not in self.left_out and not is_internal and self.pattern.fullmatch(name) is not None


def input_regexes(config: Mapping[str, str]) -> list[InputRegex]:
    """Those of the `regex-input` rewriters that have both regex and system.

    Raises:
        ConfigError: one of them is no regular expression.
    """
    needed = (REWRITER_REGEX, REWRITER_SYSTEM)
    return [
        InputRegex.of(name, config)
        for name in regex_rewriters(config)
        if all(key.named(name) in config for key in needed)
    ]


def regex_rewriters(config: Mapping[str, str]) -> list[str]:
    """The names of the `regex-input` rewriters, in order."""
    classes = {name: config.get(REWRITER_CLASS.named(name), "") for name in rewriter_names(config)}
    return [n for n, one in classes.items() if aliases.canonical(aliases.REWRITERS, one) == _REGEX_INPUT]


def rewriter_names(config: Mapping[str, str]) -> list[str]:
    """The rewriters to apply, in order; one that is listed twice counts once, with a warning."""
    listed = [name for name in java_values.split_commas(config.get(REWRITERS.name, "")) if name]
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        _log.warning("job.config.rewriters lists %s twice; it is applied once", name)
    return list(dict.fromkeys(listed))


def _rewritten(
    name: str,
    config: dict[str, str],
    list_streams: StreamLister | None,
    environment: Mapping[str, str] | None,
) -> dict[str, str]:
    key = REWRITER_CLASS.named(name)
    if key not in config:
        raise ConfigError(f"Unable to find class config for config rewriter {name}. Set {key}")
    chosen = aliases.canonical(aliases.REWRITERS, config[key])
    if chosen == "environment":
        return EnvironmentConfigRewriter(environment).rewrite(name, config)
    if chosen == _REGEX_INPUT:
        if list_streams is None:
            raise ConfigError(f"{key}={config[key]!r} needs to list streams, which cannot be done here")
        return RegexInputRewriter(list_streams).rewrite(name, config)
    if is_class_of_application(aliases.REWRITERS, chosen):
        return dict(ask_application(Settings.of(config).job, "rewrite", chosen, key, [name, config]))
    loaded = load_object(aliases.REWRITERS, chosen, accepts_classes=True, used_by=key)
    rewriter: ConfigRewriter = rewriter_of(loaded, f"{key}={config[key]!r}")
    return checked_config(name, rewriter.rewrite(name, dict(config)))


class EnvironmentConfigRewriter:
    """Samza's: an environment variable `SAMZA_FOO_BAR` sets `foo.bar`."""

    _PREFIX = "SAMZA_"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment

    def rewrite(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """See ConfigRewriter.

        Raises:
            ConfigError: a variable named just `SAMZA_`; a key in mixed case that a variable cannot reach.
        """
        found = {
            self.rename_key(variable): value
            for variable, value in self._environment.items()
            if variable.startswith(self._PREFIX)
        }
        for key, value in found.items():
            verb = "Overriding" if key in config else "Setting"
            _log.info("%s property from environment: %s=%s", verb, key, redact_value(key, value))
        for key in config:
            if key not in found and key.lower() in found:
                raise ConfigError(f"Can't override property from environment with mixed case: {key}")
        return {**config, **found}

    @classmethod
    def rename_key(cls, variable: str) -> str:
        """The key a variable sets: without the prefix, in lower case, `_` as a dot.

        Raises:
            ConfigError: nothing follows the prefix.
        """
        if len(variable) <= len(cls._PREFIX):
            raise ConfigError(f"the environment variable {variable!r} names no key; unset it")
        return variable[len(cls._PREFIX) :].lower().replace("_", ".")


class RegexInputRewriter:
    """Samza's RegExTopicGenerator: every stream of a system whose whole name matches a regex becomes an input.

    Unlike Samza's it leaves out what the job writes itself, and what jobs remember (`InputRegex.chooses`).

    `job.config.rewriter.<name>.regex`, `.system`, and `.config.<property>` for properties that each of them gets.
    """

    def __init__(self, list_streams: StreamLister) -> None:
        self._list_streams = list_streams

    def rewrite(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """See ConfigRewriter. What is configured already wins over a generated property.

        Raises:
            ConfigError: no regex, no system, or a regex that cannot be used.
        """
        regex = InputRegex.of(name, config)
        system, settings = regex.system, Settings.of(config)
        matching = {SystemStream(system, s) for s in self._list_streams(system, settings) if regex.chooses(s)}
        existing = set(settings.task.inputs)
        for both in sorted(matching & existing):
            _log.warning(
                "Regex %r matches existing, statically defined input %s.", regex.pattern.pattern, both
            )
        prefix = REWRITER_CONFIG.name.removesuffix("%s") % name
        inherited = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
        generated = {
            f"systems.{system}.streams.{stream.stream}.{key}": value
            for stream in matching
            for key, value in inherited.items()
        }
        inputs = ",".join(sorted(str(stream) for stream in matching | existing))
        return {**generated, **config, "task.inputs": inputs}
