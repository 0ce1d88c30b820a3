"""Values of keys, with the types, defaults and deprecated names of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from grete.config.key import Key, Type
from grete.config.redact import redact_value
from grete.errors import ConfigError

T = TypeVar("T")


def required_value_of(config: Mapping[str, str], key: Key[T], *names: str) -> T:
    """As `value_of`, for a key that has a default or has to be set.

    Raises:
        ConfigError: not set and without a default, or not of the key's type.
    """
    found = value_of(config, key, *names)
    if found is None:
        raise ConfigError(
            f"Missing required config: {key.named(*names)}. Set it: {key.doc[0].lower()}{key.doc[1:]}"
        )
    return found


def value_of(config: Mapping[str, str], key: Key[T], *names: str) -> T | None:
    """The typed value of a key: its current name first, then deprecated ones and stand-ins, then the default.

    `names` fill the `%s` of a family, in order. A choice is as the table writes it, in whatever case the
    configuration has it. None where nothing is set and the table has no default.

    Raises:
        ConfigError: not of the key's type.
    """
    name = next((n for n in key.all_names(*names) if n in config), key.named(*names))
    text = config.get(name, key.default)
    if text is None:
        return None
    return read_as(key.type, name, text)


def read_as(kind: Type[T], name: str, text: str) -> T:
    """The value `text` of the key `name`.

    Raises:
        ConfigError: not of the type.
    """
    try:
        return kind.read(text)
    except ValueError as error:
        raise ConfigError(f"{name}={redact_value(name, text)!r}: {error}") from error


def valid_value_of(config: Mapping[str, str], key: Key[T], *names: str) -> T | None:
    """As `value_of`, and None for what is not of the key's type: for rules beside the one that says so."""
    try:
        return value_of(config, key, *names)
    except ConfigError:
        return None
