"""Which messages are set aside as dead letters instead of failing their container."""

from __future__ import annotations

from dataclasses import dataclass

from grete.errors import ExpectationFailed

_ALL = "*"


@dataclass(frozen=True, slots=True)
class PoisonPolicy:
    """The failures whose messages are set aside. `exceptions` are names of classes, `*` is all of them."""

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
        module. What cannot be read never reached the application, so `exceptions` do not speak of it. What fails an
        expectation goes where the expectation says.
        """
        if isinstance(error, ExpectationFailed):
            return error.sets_aside
        if (
            self.everything
            or (deserializing and self.deserialization)
            or (serializing and self.serialization)
        ):
            return True
        kind = type(error)
        names = {_ALL, kind.__name__, f"{kind.__module__}.{kind.__qualname__}"}
        return not deserializing and bool(names & self.exceptions)
