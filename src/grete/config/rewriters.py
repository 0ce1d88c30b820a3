"""Config rewriters: applied once, at submit, in the order in which they are listed (S2-50, S2-51)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol

from grete.errors import ConfigError


class ConfigRewriter(Protocol):
    """Turns a configuration into another. `name` is the rewriter's name in `job.config.rewriters`."""

    def rewrite(self, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
        """The new configuration."""


def apply_rewriters(config: Mapping[str, str]) -> dict[str, str]:
    """Apply every rewriter of `job.config.rewriters` to the result of the one before.

    Raises:
        ConfigError: a rewriter has no class or it cannot be loaded.
    """
    result = dict(config)
    for name in (part.strip() for part in config.get("job.config.rewriters", "").split(",")):
        if name:
            result = dict(_load(name, config).rewrite(name, result))
    return result


def _load(name: str, config: Mapping[str, str]) -> ConfigRewriter:
    path = config.get(f"job.config.rewriter.{name}.class")
    if path is None:
        raise ConfigError(f"Unable to find class config for config rewriter {name}.")
    module, _, attribute = path.partition(":")
    try:
        rewriter: ConfigRewriter = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"job.config.rewriter.{name}.class={path!r}: cannot load it ({error})") from error
    return rewriter
