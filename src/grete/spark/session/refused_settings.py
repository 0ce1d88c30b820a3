"""Settings that Spark refuses when its context or session begins: named, and no reason to start once more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from grete.errors import ConfigError
from grete.model.ending import failure_of

_OF_A_VALUE = re.compile(r"(Spark)?(IllegalArgument|NumberFormat|ClassNotFound)Exception")
_SHORTEST = 3
"""Of shorter values a message may have the letters by chance."""


@contextmanager
def refused_settings(given: Mapping[str, str]) -> Iterator[None]:
    """Name the keys of `given` that Spark refuses within the block.

    Raises:
        ConfigError: a value is of another type than its key, or names a class that is not there.
    """
    try:
        yield
    except (Py4JJavaError, IllegalArgumentException) as error:
        failure = failure_of(error)
        if not _OF_A_VALUE.fullmatch(failure.type):
            raise
        raise ConfigError(
            f"Spark refuses its settings: {failure.message}{_named(given, failure.message)}"
        ) from error


def _named(given: Mapping[str, str], message: str) -> str:
    """The keys that the message means and does not name, by their values."""
    if any(key in message for key in given):
        return ""
    meant = sorted(key for key, value in given.items() if len(value) >= _SHORTEST and value in message)
    return f"; look at {', '.join(meant)}" if meant else "; look at the keys spark.*"
