"""Paths in a configuration: relative ones are made absolute where they are written.

A job is started again from anywhere (`--job NAME`, a standby, a service manager), and its containers work in a folder
of their own, so nothing that was written relative to one process's working folder may reach another as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from grete.config.key import LOCATION, PATH
from grete.config.keys import find_key
from grete.config.places import has_scheme

_FILE_REFERENCE = re.compile(r"\$\{file:(?P<name>[^{}]+)\}")
_CERTIFICATE = re.compile(r"(sensitive\.)?systems\..+\.ssl\.\w+\.location")
_FIRST_PARTS = ("job.", "systems.", "sensitive.systems.", "task.checkpoint.", "outputs.")


def working_folder() -> Path:
    """This process's working folder; the root where it was removed, as a service's may be."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def absolute_paths(config: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The configuration with each relative path, and each `${file:path}`, taken from `folder`."""
    return {key: absolute_path(key, value, folder) for key, value in config.items()}


def absolute_path(key: str, value: str, folder: Path) -> str:
    """The value of a key, as `absolute_paths` gives it. What is no path is left as it is."""
    if "${" in value:
        return _FILE_REFERENCE.sub(lambda match: f"${{file:{folder / match['name']}}}", value)
    return str(folder / value) if value.strip() and _is_path(key, value) else value


def _is_path(key: str, value: str) -> bool:
    if not key.startswith(_FIRST_PARTS):
        return False
    if _CERTIFICATE.fullmatch(key):
        return value != "probe"  # librdkafka's word for looking for the system's own
    known = find_key(key)
    if known is None:
        return False
    return known.type is PATH or (known.type is LOCATION and not has_scheme(value))
