"""What becomes of a message that cannot be processed: `task.poison.policy`, or what Samza's keys meant.

Samza drops what `task.drop.*.errors` and `task.ignored.exceptions` name, and nobody sees it again. Here the message
is set aside as a dead letter, in the transaction of its batch, and everything else still fails the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.config.key_tables import task
from grete.config.streams import commit_system
from grete.config.values import value_of
from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStream

_ALL = "*"


@dataclass(frozen=True, slots=True)
class PoisonPolicy:
    """Which failures set their message aside. `exceptions` are names of classes, `*` is all of them."""

    everything: bool = False
    deserialization: bool = False
    serialization: bool = False
    exceptions: frozenset[str] = frozenset()

    @property
    def sets_aside(self) -> bool:
        """Whether there is anything that does."""
        return self.everything or self.deserialization or self.serialization or bool(self.exceptions)

    def covers(self, error: BaseException, *, deserializing: bool = False, serializing: bool = False) -> bool:
        """Whether the message that failed so is set aside.

        As in Samza an exception is named by its own class, not by one that it is derived from; with or without its
        module. What cannot be read never reached the application, so `exceptions` do not speak of it.
        """
        if (
            self.everything
            or (deserializing and self.deserialization)
            or (serializing and self.serialization)
        ):
            return True
        kind = type(error)
        names = {_ALL, kind.__name__, f"{kind.__module__}.{kind.__qualname__}"}
        return not deserializing and bool(names & self.exceptions)


def poison_policy(config: Mapping[str, str]) -> PoisonPolicy:
    """`task.poison.policy` where it is set, else Samza's keys.

    Raises:
        ConfigError: a value that is none.
    """
    if task.POISON_POLICY.name in config:
        return PoisonPolicy(everything=value_of(config, task.POISON_POLICY) == "dead-letter")
    return PoisonPolicy(
        deserialization=bool(value_of(config, task.DROP_DESERIALIZATION_ERRORS)),
        serialization=bool(value_of(config, task.DROP_SERIALIZATION_ERRORS)),
        exceptions=frozenset(value_of(config, task.IGNORED_EXCEPTIONS) or ()),
    )


def dead_letter_stream(config: Mapping[str, str]) -> SystemStream | None:
    """Where dead letters go: the stream that is named, else one of the job's own where Samza's keys want one.

    Raises:
        ConfigError: a value that is none, a name that is none, or an input without a system.
    """
    named = config.get(task.DEAD_LETTERS.name, "").strip()
    if named:
        try:
            return SystemStream.parse(named)
        except WireError as error:
            raise ConfigError(
                f"{task.DEAD_LETTERS.name}: {named!r} is not of the form system.stream"
            ) from error
    if not poison_policy(config).sets_aside:
        return None
    return SystemStream(
        commit_system(config), f"{config.get('job.name')}-{config.get('job.id', '1')}-dead-letters"
    )
