"""Configuration keys: name, type, default, unit, meaning, and what a change of it restarts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Generic, TypeVar

from grete.config import java_values
from grete.registry import known_plugins
from grete.suggestions import did_you_mean

E = TypeVar("E", bound=StrEnum)
T_co = TypeVar("T_co", covariant=True)


class ChangeClass(StrEnum):
    """The restart that a change of a key makes necessary, from the least to the most (INTERNAL stands apart)."""

    INTERNAL = "internal"
    """Written by grete itself, never by users."""
    LIVE = "live"
    """Applied in place."""
    RESTART_QUERY = "restart-query"
    """The streaming query starts again inside its Spark application."""
    RESTART_CONTAINER = "restart-container"
    """The Spark application starts again."""
    SET_ONCE = "set-once"
    """Refused once the job has state: the value decides which state belongs to which task (S1-23)."""


@dataclass(frozen=True, slots=True)
class Type(Generic[T_co]):
    """A value's type: its name for people, and a reader that raises ValueError saying what is wrong."""

    name: str
    read: Callable[[str], T_co]
    choices: tuple[str, ...] = ()
    """The words that the value is one of, where it is one of a few."""

    def problem(self, value: str) -> str | None:
        """The fault of a value and the way out, None when there is none."""
        try:
            self.read(value)
        except ValueError as error:
            return str(error)
        return None


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("it is neither true nor false; Samza reads anything but true as false, grete asks")
    return value.lower() == "true"


def _whole(low: int, high: int, what: str) -> Callable[[str], int]:
    def read(value: str) -> int:
        try:
            number = java_values.parse_long(value)
        except ValueError:
            raise ValueError(f"it is not {what}; write digits only") from None
        if not low <= number <= high:
            raise ValueError(f"it is not {what}; write a number from {low} to {high}")
        return number

    return read


def _items(value: str) -> tuple[str, ...]:
    return tuple(item for item in java_values.split_commas(value) if item)


def _versions(value: str) -> tuple[str, ...]:
    items = _items(value)
    if not items or any(item not in ("1", "2") for item in items):
        raise ValueError("checkpoint versions are 1 and 2, separated by commas")
    return items


def _class_path(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", value):
        raise ValueError(
            "it does not name a class; write it as module:Class, for example my_job.tasks:Counter"
        )
    return value


def bounded(what: str, low: int, high: int) -> Type[int]:
    """A whole number between two, both included."""
    return Type(what, _whole(low, high, what))


TEXT = Type("text", _text)
PATH = Type("path", _text)
"""Relative ones are made absolute where they are written (`grete.config.paths`)."""
LOCATION = Type("path or URL", _text)
"""A path, as above, or an address on any file system that Spark knows (`grete.config.places`), left as it is."""
LIST = Type("a list, separated by commas", _items)
BOOLEAN = Type("true or false", _boolean)
INTEGER = bounded("a whole number", -(2**31), 2**31 - 1)
NATURAL = bounded("a whole number of zero or more", 0, 2**31 - 1)
COUNT = bounded("a whole number of one or more", 1, 2**31 - 1)
CONTAINERS = bounded("a whole number of containers", 1, 10_000)
"""Each is a process with a Spark application: beyond it is a slip of the pen, and would be calculated with."""
COPIES = bounded("a whole number of copies", 1, 100)
LEASE = bounded("a number of milliseconds, at most a day", 1, 86_400_000)
"""A longer wait for a leader that is gone is a mistake, and clocks of threads end at 300 years."""
BYTES = bounded("a number of bytes", 1, 2**63 - 1)
MILLISECONDS = bounded("a number of milliseconds", -1, 2**63 - 1)
DURATION = bounded("a number of milliseconds of one or more", 1, 2**63 - 1)
PORT = bounded("a port", 0, 65535)
CLASS = Type("a class, module:Class", _class_path)
CHECKPOINT_VERSIONS = Type("checkpoint versions", _versions)


def one_of(choices: type[E]) -> Type[E]:
    """One of a few words, in lower or upper case; reads as the enum writes it."""

    def read(value: str) -> E:
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise ValueError(f"it is none of {', '.join(choices)}{did_you_mean(value, choices)}")

    return Type("one of " + ", ".join(choices), read, tuple(choice.value for choice in choices))


def one_of_or_plugin(choices: type[E], group: str) -> Type[str]:
    """As `one_of`, or the name of an installed plug-in of the group of entry points."""
    own = one_of(choices)

    def read(value: str) -> str:
        if own.problem(value) is None:
            return own.read(value)
        plugins = known_plugins(group)
        if value not in plugins:
            known = [*choices, *plugins]
            raise ValueError(f"it is none of {', '.join(known)}{did_you_mean(value, known)}")
        return value

    return Type(f"{own.name}, or a plug-in of `{group}`", read, own.choices)


@dataclass(frozen=True)
class Key(Generic[T_co]):
    """A key or, with `%s`, a family of keys.

    `%s` stands for a name: for one without a dot after `systems.`, `stores.` and `outputs.`, for any text elsewhere.
    """

    name: str
    type: Type[T_co]
    default: str | None
    change: ChangeClass
    doc: str
    unit: str = ""
    renamed_from: tuple[str, ...] = ()
    """Deprecated names. They are read where the current name is not set, with a warning."""
    spellings: tuple[str, ...] = ()
    """Other names that are as good, Samza's older or newer ones; `grete.config.settings` has their precedence."""
    fallbacks: tuple[str, ...] = ()
    """Other keys that stand in, with a warning, where neither the name nor a deprecated one is set."""
    default_doc: str = ""
    """How the default comes about when it is no constant."""
    aliases: str = ""
    """The group of `grete.config.aliases` whose names the values are."""
    is_secret: bool = False
    is_open: bool = False
    """A family passed through to something else (Spark, a client library): any name is known, none is checked."""
    no_effect: str = ""
    """Why grete accepts the key of a Samza configuration without doing anything about it."""

    def named(self, *names: str) -> str:
        """The key's name with its `%s` filled in."""
        return _fill(self.name, names)

    @property
    def is_family(self) -> bool:
        """Whether the name has a `%s`."""
        return "%s" in self.name

    def all_names(self, *names: str) -> tuple[str, ...]:
        """Every name the value may be found under, the current one first."""
        every = (self.name, *self.renamed_from, *self.fallbacks)
        return tuple(_fill(name, names) for name in every if name.count("%s") == len(names))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the family's keys; the groups are the names."""
        return _pattern(self.name)

    @cached_property
    def other_patterns(self) -> tuple[re.Pattern[str], ...]:
        """As `pattern`, one for each deprecated name and other spelling."""
        return tuple(_pattern(name) for name in (*self.renamed_from, *self.spellings))


def _fill(name: str, names: tuple[str, ...]) -> str:
    return name % names if names else name


def _pattern(name: str) -> re.Pattern[str]:
    escaped = re.escape(name).replace("%s", "(.+)")
    return re.compile(re.sub(r"^(systems|stores|outputs)\\\.\(\.\+\)", r"\1\\.([^.]+)", escaped), re.DOTALL)
