"""Configuration from files and overrides into one flat mapping of strings.

`.properties` follows java.util.Properties; a file that is valid UTF-8 is read as UTF-8, any other as ISO-8859-1.
YAML and TOML are flattened with dots. Later files and overrides win. Values such as `${env:NAME}` and `${file:path}`
are references: they stay as they are and are resolved only where the secret is used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import yaml

from grete.config.properties import parse_properties
from grete.errors import ConfigError

_MAX_BYTES = 64 * 1024 * 1024
_RELATIVE_PATH_KEYS = ("job.application.path",)


def config_path(text: str) -> Path:
    """A plain path or a `file://` URL as a path.

    Raises:
        ConfigError: another scheme.
    """
    if "://" not in text:
        return Path(text)
    url = urlparse(text)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise ConfigError(f"cannot read configuration from {text!r}: only paths and file:/// URLs")
    return Path(unquote(url.path))


def load_file(path: Path) -> dict[str, str]:
    """One file, by its ending: .properties, .yaml/.yml, .toml.

    Paths that are relative are made absolute against the file's own directory, so that the job can be started from
    anywhere and from the coordinator stream alone.

    Raises:
        ConfigError: not there, not readable, not of its format; names file and line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} has {len(data)} bytes; a configuration has at most {_MAX_BYTES}")
    config = _parse(path, data)
    for key in _RELATIVE_PATH_KEYS:
        if key in config:
            config[key] = str((path.resolve().parent / config[key]).resolve())
    return config


def _parse(path: Path, data: bytes) -> dict[str, str]:
    ending = path.suffix.lower()
    if ending == ".properties":
        return parse_properties(_text(data), origin=str(path))
    if ending in (".yaml", ".yml"):
        return _flatten(_yaml(path, data), path)
    if ending == ".toml":
        return _flatten(_toml(path, data), path)
    raise ConfigError(f"{path}: a configuration ends in .properties, .yaml, .yml or .toml")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


class _UniqueKeys(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, of which plain YAML silently takes the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """See SafeLoader."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} appears twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _yaml(path: Path, data: bytes) -> Any:
    try:
        return yaml.load(data, Loader=_UniqueKeys) or {}  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error


def _toml(path: Path, data: bytes) -> Any:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _flatten(document: Any, path: Path) -> dict[str, str]:
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: the top of a configuration is a mapping, got {type(document).__name__}")
    flat: dict[str, str] = {}
    for key, value in _walk(document, ""):
        if key in flat:
            raise ConfigError(f"{path}: {key} is given twice, nested and with dots")
        flat[key] = value
    return flat


def _walk(value: Any, prefix: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _walk(child, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        yield prefix, ",".join(_scalar(item) for item in value)
    elif value is not None:
        yield prefix, _scalar(value)


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(paths: Iterable[str], overrides: Mapping[str, str]) -> dict[str, str]:
    """All files, in order, then the overrides."""
    config: dict[str, str] = {}
    for path in paths:
        config |= load_file(config_path(path))
    return config | dict(overrides)
