"""Config rewriters: applied once, at submit, in the order in which they are listed (S2-50, S2-51).

Samza moved them from the runner to the coordinator and back (SAMZA-793). Here `grete run --config` applies them
before the configuration is validated and written; a coordinator that starts from its stream finds them applied and
never applies them again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from grete.config import aliases, java_values
from grete.config.completed import completed
from grete.config.java_regex import compile_java
from grete.config.redact import redact_value
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.registry import load_object

_log = logging.getLogger(__name__)

_INTERNAL = "__"
StreamLister = Callable[[str, Mapping[str, str]], Iterable[str]]
"""Names of the streams that a system has now: (system, configuration) -> names."""


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

    `list_streams` serves the built-in `regex-input`, `environment` (this process's by default) `environment`.

    Raises:
        ConfigError: a rewriter has no class, cannot be loaded, or returns something else than strings.
    """
    result = dict(config)
    for name in rewriter_names(config):
        result = _checked(name, _load(name, result, list_streams, environment).rewrite(name, dict(result)))
    return completed(result)


def with_new_inputs(config: Mapping[str, str], *, list_streams: StreamLister) -> dict[str, str]:
    """The configuration with the streams that its `regex-input` rewriters choose now; no other rewriter is applied.

    For a job that runs: what else was rewritten is in its configuration already.

    Raises:
        ConfigError: a regex cannot be used.
    """
    result = dict(config)
    for name in rewriter_names(config):
        chosen = aliases.canonical(aliases.REWRITERS, config.get(f"job.config.rewriter.{name}.class", ""))
        if chosen == "regex-input":
            result = RegexInputRewriter(list_streams).rewrite(name, result)
    return result


def rewriter_names(config: Mapping[str, str]) -> list[str]:
    """The rewriters to apply, in order; one that is listed twice counts once, with a warning."""
    listed = [name for name in java_values.split_commas(config.get("job.config.rewriters", "")) if name]
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        _log.warning("job.config.rewriters lists %s twice; it is applied once", name)
    return list(dict.fromkeys(listed))


def _load(
    name: str,
    config: Mapping[str, str],
    list_streams: StreamLister | None,
    environment: Mapping[str, str] | None,
) -> ConfigRewriter:
    key = f"job.config.rewriter.{name}.class"
    if key not in config:
        raise ConfigError(f"Unable to find class config for config rewriter {name}. Set {key}")
    chosen = aliases.canonical(aliases.REWRITERS, config[key])
    if chosen == "environment":
        return EnvironmentConfigRewriter(environment)
    if chosen == "regex-input":
        if list_streams is None:
            raise ConfigError(f"{key}={config[key]!r} needs to list streams, which cannot be done here")
        return RegexInputRewriter(list_streams)
    loaded = load_object(aliases.REWRITERS, chosen, accepts_classes=True, used_by=key)
    rewriter: ConfigRewriter = loaded() if callable(loaded) else loaded
    if not callable(getattr(rewriter, "rewrite", None)):
        raise ConfigError(f"{key}={config[key]!r} has no method rewrite(name, config)")
    return rewriter


def _checked(name: str, result: object) -> dict[str, str]:
    if not isinstance(result, Mapping):
        raise ConfigError(
            f"config rewriter {name} returned {type(result).__name__}, not a mapping of strings"
        )
    wrong = sorted(str(k) for k, v in result.items() if not (isinstance(k, str) and isinstance(v, str)))
    if wrong:
        raise ConfigError(
            f"config rewriter {name} returned keys or values that are no strings: {', '.join(wrong)}"
        )
    return dict(result)


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

    Unlike Samza's it leaves out what the job writes itself, and what jobs remember (`may_be_chosen`).

    `job.config.rewriter.<name>.regex`, `.system`, and `.config.<property>` for properties that each of them gets.
    """

    def __init__(self, list_streams: StreamLister) -> None:
        self._list_streams = list_streams

    def rewrite(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """See ConfigRewriter. What is configured already wins over a generated property.

        Raises:
            ConfigError: no regex, no system, or a regex that cannot be used.
        """
        settings = Settings.of(config)
        prefix = f"job.config.rewriter.{name}."
        for needed in ("regex", "system"):
            if prefix + needed not in config:
                raise ConfigError(f"No {prefix}{needed} defined in config; the rewriter {name} needs it")
        system = config[prefix + "system"]
        pattern = compile_java(config[prefix + "regex"], used_by=f"{prefix}regex")
        own = settings.own_streams(system)
        matching = {
            SystemStream(system, s)
            for s in self._list_streams(system, config)
            if may_be_chosen(s, pattern, own)
        }
        existing = set(settings.task.inputs)
        for both in sorted(matching & existing):
            _log.warning("Regex %r matches existing, statically defined input %s.", pattern.pattern, both)
        inherited = {k[len(prefix) + 7 :]: v for k, v in config.items() if k.startswith(prefix + "config.")}
        generated = {
            f"systems.{system}.streams.{stream.stream}.{key}": value
            for stream in matching
            for key, value in inherited.items()
        }
        inputs = ",".join(sorted(str(stream) for stream in matching | existing))
        return {**generated, **config, "task.inputs": inputs}


def may_be_chosen(name: str, pattern: re.Pattern[str], own: Collection[str]) -> bool:
    """Whether a pattern for inputs chooses the stream; never one of `own`, the job's.

    Streams whose names begin with two underscores hold what jobs remember (coordinator streams, checkpoints, fences):
    a pattern chooses them only when it begins so as well.
    """
    is_internal = name.startswith(_INTERNAL) and not pattern.pattern.startswith(_INTERNAL)
    return name not in own and not is_internal and pattern.fullmatch(name) is not None
