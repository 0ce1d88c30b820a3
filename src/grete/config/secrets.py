"""References to secrets: `${env:NAME}` and `${file:/path}`.

They stay references in files, in the coordinator stream, over HTTP and in logs, and are resolved only by the process
that needs the value, at the moment it needs it (RELIABILITY rule 18). Workers on executors of a cluster get it from
their container, where environment and files are (`secret_channel`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from grete.config.reference import REFERENCE
from grete.config.secret_channel import VARIABLE, FetchedSecrets
from grete.errors import ConfigError

_MAX_BYTES = 64 * 1024
_NOT_THE_EXECUTORS = ("job.", "azure.", "spark.", "cluster-manager.")
"""Keys that only coordinator and container read: how they elect, where they keep copies of checkpoints."""
_fetched = FetchedSecrets()


def has_reference(value: str) -> bool:
    """Whether a value holds at least one reference."""
    return REFERENCE.search(value) is not None


def references(value: str) -> list[str]:
    """Every reference in a value, as it is written."""
    return [match[0] for match in REFERENCE.finditer(value)]


def variables(config: Mapping[str, str]) -> list[str]:
    """The environment variables that a configuration refers to, sorted."""
    found = (match for value in config.values() for match in REFERENCE.finditer(value))
    return sorted({match["name"] for match in found if match["kind"] == "env" and match["name"]})


def for_executors(config: Mapping[str, str]) -> dict[str, str]:
    """The keys with references that workers on executors may ask for."""
    return {
        key: value
        for key, value in config.items()
        if references(value) and not key.startswith(_NOT_THE_EXECUTORS)
    }


def resolve_secrets(value: str, environment: Mapping[str, str] | None = None) -> str:
    """The value with every reference replaced by what it refers to; what comes in is not looked at again.

    A file gives its text as UTF-8 without one line break at its end.

    Raises:
        ConfigError: a variable is not set, a file cannot be read or is larger than 64 KiB. Never holds a secret.
        JobError: on an executor, whose container cannot be asked.
    """
    given = os.environ if environment is None else environment
    asks = environment is None and VARIABLE in given and has_reference(value)
    known = _fetched.at(given[VARIABLE]) if asks else {}

    def resolved(match: re.Match[str]) -> str:
        if match[0] in known:
            return known[match[0]]
        if match["kind"] == "file":
            return _read(match["name"])
        if match["name"] not in given:
            raise ConfigError(
                f"cannot resolve {match[0]}: the environment variable {match['name']!r} is not set in this process. "
                f"Containers get it from their coordinator, so set it where that is started, or write ${{file:/path}}"
            )
        return given[match["name"]]

    return REFERENCE.sub(resolved, value)


def _read(name: str) -> str:
    reference = f"${{file:{name}}}"
    try:
        with Path(name).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot resolve {reference}: {error}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"cannot resolve {reference}: the file is larger than {_MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot resolve {reference}: the file is not UTF-8 text") from error
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
