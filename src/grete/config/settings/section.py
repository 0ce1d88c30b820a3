"""How settings are read: each through its key of the table, with its type and default, when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar, overload

from grete.config.key import Key
from grete.config.values import required_value_of, value_of

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """Settings of one subject.

    They are read lazily, so a value of a wrong form is an error only where that value is needed.
    """

    raw: Mapping[str, str] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that fill the `%s` of the section's keys, in order."""
        return ()


@dataclass(frozen=True)
class NamedSection(Section):
    """Settings of one of several: a system, a store."""

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """Its name."""
        return (self.name,)


class _Read(Generic[T]):
    def __init__(self, key: Key[T]) -> None:
        self._key = key

    def __set_name__(self, owner: type[Section], name: str) -> None:
        self._name = name


class Setting(_Read[T]):
    """The value of a key, else its default.

    Raises:
        ConfigError: of another type than the key's, or not set and without a default.
    """

    @overload
    def __get__(self, section: None, owner: type[Section]) -> Self: ...
    @overload
    def __get__(self, section: Section, owner: type[Section]) -> T: ...
    def __get__(self, section: Section | None, owner: type[Section]) -> Self | T:
        if section is None:
            return self
        value = required_value_of(section.raw, self._key, *section.names)
        section.__dict__[self._name] = value  # so that this is not called again
        return value


class OptionalSetting(_Read[T]):
    """As `Setting`, and None where the key is not set and has no default."""

    @overload
    def __get__(self, section: None, owner: type[Section]) -> Self: ...
    @overload
    def __get__(self, section: Section, owner: type[Section]) -> T | None: ...
    def __get__(self, section: Section | None, owner: type[Section]) -> Self | T | None:
        if section is None:
            return self
        value = section.__dict__[self._name] = value_of(section.raw, self._key, *section.names)
        return value
