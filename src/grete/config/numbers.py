"""Numbers that back ends take from a configuration before, or without, its validation as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.key import Key
from grete.errors import ConfigError


def number_of(config: Mapping[str, str], key: Key[int]) -> int:
    """The key's value, else that of the key that stands in for it, else its default (S2-54: in this order).

    Raises:
        ConfigError: not a whole number of one or more.
    """
    name = next((name for name in (key.name, *key.fallbacks) if name in config), None)
    return at_least_one(key.name, key.default or "") if name is None else at_least_one(name, config[name])


def at_least_one(name: str, text: str) -> int:
    """The value of the key `name` as a number.

    Raises:
        ConfigError: not a whole number of one or more.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name}={text!r} must be a whole number of one or more")
    return number
