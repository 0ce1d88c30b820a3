"""Names of streams that the configuration gives: those that no system can have are refused before one is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from grete.config import aliases, java_values
from grete.config.key_tables.streams import STORE_CHANGELOG
from grete.config.key_tables.task import BROADCAST, DEAD_LETTERS, INPUTS, OUTPUTS
from grete.config.settings import Settings
from grete.errors import ConfigError, StreamError
from grete.model.streams import check_name

_WORDS = re.compile(r"[\s;|]+")


def stream_name_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each stream whose name its system cannot have. Plug-ins have their own rules, and are not asked."""
    settings = Settings.of(config)
    for key in (INPUTS.name, OUTPUTS.name, DEAD_LETTERS.name):
        for name in java_values.split_commas(config.get(key, "")):
            yield from _name(settings, key, name)
    with suppress(ConfigError):  # another rule says so
        for stream in sorted({ssp.system_stream for ssp in settings.task.broadcast_inputs}):
            yield from _name(settings, BROADCAST.name, str(stream))
    for store in settings.store_names:
        changelog = settings.store(store).changelog or ""
        if "." in changelog:
            yield from _name(settings, STORE_CHANGELOG.named(store), changelog)


def _name(settings: Settings, key: str, name: str) -> Iterator[str]:
    system, _, stream = name.partition(".")
    if not stream or settings.system(system).kind not in aliases.known_names(aliases.SYSTEMS):
        return  # of another form, or of a system that is not known: another rule says so
    try:
        check_name(stream)
    except StreamError as error:
        meant = _meant(name, system)
        way_out = f"; did you mean {key}={meant}?" if meant else ""
        yield f"{key}: {name!r} is no stream: {error}. Names are separated by commas{way_out}"


def _meant(name: str, system: str) -> str:
    """The words that are streams of the system: `kafka.a as b` is `kafka.a`, `kafka.a; kafka.b` are both."""
    words = [word for word in _WORDS.split(name) if word.startswith(f"{system}.")]
    with suppress(StreamError):
        for word in words:
            check_name(word.partition(".")[2])
        return ",".join(words)
    return ""
