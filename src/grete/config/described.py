"""What a StreamTask says of itself, as keys of the configuration (Samza's `describe`).

It crosses the process boundary as JSON and is part of the configuration from the submit on, so the coordinator and
containers never ask again. What the configuration itself says wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grete.config.application_classes import ask_application
from grete.config.key_tables.job import TASK_CLASS
from grete.config.key_tables.serdes import SERDE_CLASS
from grete.config.key_tables.streams import STORE_FACTORY, STORE_KEY_SERDE, STORE_MSG_SERDE
from grete.config.key_tables.task import INPUTS, OUTPUTS
from grete.config.settings import Settings
from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStream


def with_description(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with what its task's class describes, if it names no inputs and has such a class.

    Raises:
        ConfigError, ApplicationError: the class cannot be asked.
    """
    path = config.get(TASK_CLASS.name, "")
    if not path or config.get(INPUTS.name, "").strip():
        return dict(config)
    described = ask_application(Settings.of(config).job, "describe", path, TASK_CLASS.name, dict(config))
    given = {key: value for key, value in config.items() if value.strip() or key != INPUTS.name}
    return {**dict(_keys(described)), **given}


def _keys(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, streams in ((INPUTS, described["inputs"]), (OUTPUTS, described["outputs"])):
        if streams:
            yield key.name, ",".join(streams)
        for name, serdes in streams.items():
            stream = _stream(name)
            prefix = f"systems.{stream.system}.streams.{stream.stream}.samza."
            yield from _said({f"{prefix}key.serde": serdes[0], f"{prefix}msg.serde": serdes[1]})
    for name, serdes in described["stores"].items():
        yield STORE_FACTORY.named(name), "grete.store.sqlite"
        yield from _said({STORE_KEY_SERDE.named(name): serdes[0], STORE_MSG_SERDE.named(name): serdes[1]})
    for name, path in described["serdes"].items():
        yield SERDE_CLASS.named(name), path


def _said(keys: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    yield from ((key, serde) for key, serde in keys.items() if serde is not None)


def _stream(name: str) -> SystemStream:
    try:
        return SystemStream.parse(name)
    except WireError as error:
        raise ConfigError(f"describe names the stream {name!r}; write it as system.stream") from error
