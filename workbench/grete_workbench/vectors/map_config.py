"""Samza's MapConfig: its getters, over the readers of values that grete uses as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn, TypeVar, overload

from grete.config import java_values
from grete.config.java_regex import compile_java
from grete.config.redact import MASK, redact, redact_value
from grete.errors import ConfigError
from grete.wire.java_hash import string_hash

T = TypeVar("T")


class MapConfig(Mapping[str, str]):
    """A configuration. A key that is there with `""` has a value; a null is no value, so it is left out.

    The maps are layered: a later one wins. `get_...` without a default raise `ConfigError("Missing key k.")`.
    """

    __slots__ = ("_map",)

    def __init__(self, *maps: Mapping[str, str] | Mapping[str, str | None] | None) -> None:
        merged: dict[str, str] = {}
        for layer in maps:
            for key, value in (layer or {}).items():
                if value is not None:
                    merged[key] = value
        self._map = merged

    def __getitem__(self, key: str) -> str:
        return self._map[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __hash__(self) -> int:
        return map_config_hash(self._map)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"MapConfig({redact(self._map)!r})"

    def __setitem__(self, key: str, value: str) -> NoReturn:
        raise ConfigError("Config is immutable.")

    def __delitem__(self, key: str) -> NoReturn:
        raise ConfigError("Config is immutable.")

    # --- Samza's getters ---

    def get_int(self, key: str, default: int | None = None) -> int:
        """A 32-bit whole number, as `Integer.parseInt` reads it."""
        return self._parsed(key, default, java_values.parse_int, "a whole number of 32 bits")

    def get_long(self, key: str, default: int | None = None) -> int:
        """A 64-bit whole number."""
        return self._parsed(key, default, java_values.parse_long, "a whole number of 64 bits")

    def get_short(self, key: str, default: int | None = None) -> int:
        """A 16-bit whole number."""
        return self._parsed(key, default, _parse_short, "a whole number of 16 bits")

    def get_double(self, key: str, default: float | None = None) -> float:
        """A decimal number, as `Double.parseDouble` reads it."""
        return self._parsed(key, default, java_values.parse_double, "a number")

    def get_boolean(self, key: str, default: bool | None = None) -> bool:
        """True for "true" in any case, else false: "yes" and "1" are false, as in Samza."""
        return self._parsed(key, default, java_values.parse_boolean, "true or false")

    @overload
    def get_list(self, key: str) -> list[str] | None: ...
    @overload
    def get_list(self, key: str, default: list[str]) -> list[str]: ...
    def get_list(self, key: str, default: list[str] | None = None) -> list[str] | None:
        """Items between commas, blanks around commas removed; the default when the value is blank."""
        if key not in self._map:
            if default is None:
                raise _missing(key)
            return default
        items = java_values.split_list(self._map[key])
        return default if items is None else items

    def _parsed(self, key: str, default: T | None, parse: Callable[[str], T], what: str) -> T:
        text = self._map.get(key)
        if text is None:
            if default is None:
                raise _missing(key)
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigError(f"{key}={redact_value(key, text)!r} is not {what}") from error

    def subset(self, prefix: str, *, strip: bool = True) -> MapConfig:
        """The entries whose key starts with `prefix`, which is taken off unless `strip` is false."""
        cut = len(prefix) if strip else 0
        return MapConfig({key[cut:]: value for key, value in self.items() if key.startswith(prefix)})

    def regex_subset(self, regex: str) -> MapConfig:
        """The entries in whose key the Java regular expression is found anywhere."""
        pattern = compile_java(regex, used_by="regexSubset")
        return MapConfig({key: value for key, value in self.items() if pattern.search(key)})

    def sanitize(self) -> MapConfig:
        """Samza's masking: only values of keys that start with `sensitive.`; `redact` masks far more."""
        return MapConfig({k: MASK if k.startswith("sensitive.") else v for k, v in self.items()})


def layered(maps: Iterable[Mapping[str, str] | None]) -> MapConfig:
    """MapConfig of a list of maps."""
    return MapConfig(*maps)


def _missing(key: str) -> ConfigError:
    return ConfigError(f"Missing key {key}.")


def map_config_hash(config: Mapping[str, str]) -> int:
    """`MapConfig.hashCode`: the sum over the entries, plus 31, as a signed 32-bit number."""
    mask = 2**32 - 1
    total = 31 + sum((string_hash(key) & mask) ^ (string_hash(value) & mask) for key, value in config.items())
    return (total + 2**31) % 2**32 - 2**31


def _parse_short(text: str) -> int:
    """`Short.parseShort`, which parses an int first and then complains in other words."""
    value = java_values.parse_int(text)
    if not -(2**15) <= value < 2**15:
        raise java_values.NumberFormatError(f'Value out of range. Value:"{text}" Radix:10')
    return value
