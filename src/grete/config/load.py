"""Configuration from files and overrides into one flat mapping of strings.

`.properties` follows java.util.Properties. Java reads such a file as ISO-8859-1; people write UTF-8. So a file that
is valid UTF-8 is read as UTF-8, any other as ISO-8859-1. Pure ASCII is the same in both, as is `\\u00e9`.
YAML and TOML are UTF-8, flattened with dots. Later files win over earlier ones, overrides over files. Values such as
`${env:NAME}` and `${file:path}` are references: they stay as they are and are resolved only where the secret is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from grete.config.derived import with_derived_keys
from grete.config.key_tables.job import APPLICATION_PATH
from grete.config.paths import absolute_paths, working_folder
from grete.config.places import place_of
from grete.config.properties import parse_properties
from grete.config.structured import parse_toml, parse_yaml
from grete.errors import ConfigError

MAX_BYTES = 256 * 1024 * 1024
"""Samza sets no bound (S1-22); this one only keeps a wrong path, such as a data file, from filling the memory."""
_READERS = {
    ".properties": parse_properties,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": parse_toml,
}


def config_path(text: str) -> Path:
    """A plain path or a `file://` URL as a path.

    Raises:
        ConfigError: another scheme, or a host.
    """
    place = place_of(text)
    if isinstance(place, str):
        raise ConfigError(f"cannot read configuration from {text!r}: give a path or a file:///path URL")
    return place


def load_file(path: Path) -> dict[str, str]:
    """One file, by its ending: .properties, .yaml/.yml, .toml.

    The application's folder, which belongs to the file like the modules in it, is relative to the file's own folder.

    Raises:
        ConfigError: not there, not readable, not of its format; names file and line.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(
            f"cannot read the configuration {path}: its name must end in {', '.join(_READERS)} to show its format"
        )
    config = reader(_text(path, _bytes(path)), origin=str(path))
    if config.get(APPLICATION_PATH.name, "").strip():
        config[APPLICATION_PATH.name] = str((path.resolve().parent / config[APPLICATION_PATH.name]).resolve())
    return config


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(
                f"{path} has {size} bytes, a configuration at most {MAX_BYTES}; is it the right file?"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if path.suffix.lower() == ".properties":
            return data.decode("iso-8859-1")
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from error


def parse_overrides(items: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` items; the value may be empty and may hold `=`.

    Raises:
        ConfigError: an item without `=` or without a key; names every such item.
    """
    parsed = [(item, *item.partition("=")) for item in items]
    problems = [
        f"override {item!r}: write KEY=VALUE"
        for item, key, equals, _ in parsed
        if not key.strip() or not equals
    ]
    if problems:
        raise ConfigError(*problems)
    return {key.strip(): value for _, key, _, value in parsed}


def load(paths: Iterable[str], overrides: Mapping[str, str]) -> dict[str, str]:
    """All files, in order, then the overrides; completed (`grete.config.derived`).

    Paths are absolute, those that are relative from the working folder (but see `load_file`).

    Raises:
        ConfigError: see `load_file`.
    """
    config: dict[str, str] = {}
    for path in paths:
        config |= load_file(config_path(path))
    return with_derived_keys(absolute_paths(config | dict(overrides), working_folder()))
