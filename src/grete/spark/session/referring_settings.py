"""Settings of Spark's that refer to secrets (`${env:NAME}`, `${file:/path}`): in its context and no command line.

What PySpark starts a JVM with stands among the arguments of its process, which every user of the machine can read.
What the JVM needs to begin with has to stand there, and is resolved: memory, options of Java, jars.
"""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.secrets import has_reference, resolve_secrets
from grete.errors import ConfigError

_OF_THE_START = ("spark.driver.", "spark.jars", "spark.submit.", "spark.master", "spark.app.name")
_AS_WRITTEN = "spark.master"
"""Where executors are is asked by rules and plans before Spark starts, of the value as it is written."""


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for Spark's context. `${spark.x}` and whatever else Spark replaces by itself stays as it is.

    Raises:
        ConfigError: a reference refers to nothing; names the key.
    """
    return {key: value if key == _AS_WRITTEN else _resolved(key, value) for key, value in settings.items()}


def for_command_line(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that the JVM of the context may be started with.

    Raises:
        ConfigError: see `resolved`.
    """
    return resolved(
        {k: value for k, value in settings.items() if k.startswith(_OF_THE_START) or not has_reference(value)}
    )


def _resolved(key: str, value: str) -> str:
    try:
        return resolve_secrets(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
