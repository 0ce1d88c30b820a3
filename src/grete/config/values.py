"""`Config`: an immutable mapping of strings with Samza's getters (MapConfig), and typed getters by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn, TypeVar, overload

from grete.config import java_values
from grete.config.java_regex import compile_java
from grete.config.key import Key, Type
from grete.config.redact import MASK, redact, redact_value
from grete.errors import ConfigError

T = TypeVar("T")
D = TypeVar("D")


class Config(Mapping[str, str]):
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
        return java_values.map_config_hash(self._map)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"Config({redact(self._map)!r})"

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
        return self._parsed(key, default, java_values.parse_short, "a whole number of 16 bits")

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

    def subset(self, prefix: str, *, strip: bool = True) -> Config:
        """The entries whose key starts with `prefix`, which is taken off unless `strip` is false."""
        cut = len(prefix) if strip else 0
        return Config({key[cut:]: value for key, value in self.items() if key.startswith(prefix)})

    def regex_subset(self, regex: str) -> Config:
        """The entries in whose key the Java regular expression is found anywhere."""
        pattern = compile_java(regex, used_by="regexSubset")
        return Config({key: value for key, value in self.items() if pattern.search(key)})

    def sanitize(self) -> Config:
        """Samza's masking: only values of keys that start with `sensitive.`; `redact` masks far more."""
        return Config({k: MASK if k.startswith("sensitive.") else v for k, v in self.items()})

    # --- typed getters by key ---

    def value(self, key: Key[T], *names: str) -> T:
        """The typed value of a key of the table, its current name first, then fallbacks, then the default.

        `names` fill the `%s` of a family of keys, in order.

        Raises:
            ConfigError: not set and without a default, or not of the key's type.
        """
        return required_value_of(self._map, key, *names)

    def optional(self, key: Key[T], *names: str) -> T | None:
        """As `value`, but None where nothing is set and the table has no default."""
        return value_of(self._map, key, *names)


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
    """The typed value of a key of the table, as validation has read it: whoever uses a choice reads it here.

    A choice comes as the table writes it, however the configuration does. None where nothing is set and the table has
    no default.

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


def layered(maps: Iterable[Mapping[str, str] | None]) -> Config:
    """MapConfig of a list of maps."""
    return Config(*maps)


def _missing(key: str) -> ConfigError:
    return ConfigError(f"Missing key {key}.")
