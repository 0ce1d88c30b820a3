"""Metrics reporters: the streams that get snapshots of a container's metrics (Samza's MetricsConfig)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grete.config import aliases
from grete.config.java_regex import compile_java
from grete.config.key_tables import task as keys
from grete.config.key_tables.serdes import SERDE_CLASS
from grete.config.settings.streams import StreamSettings, system_stream_from_names
from grete.config.values import required_value_of, value_of
from grete.model.ids import SystemStream

SNAPSHOT = "snapshot"
_WITH_TYPE_TAGS = "org.apache.samza.serializers.MetricsSnapshotSerdeV2Factory"


@dataclass(frozen=True, slots=True)
class SnapshotReporter:
    """A stream of snapshots; metrics whose `group.name` matches `left_out` are not in them.

    `has_type_tags`: they are as Samza's MetricsSnapshotSerdeV2 writes them, else plain JSON.
    """

    name: str
    stream: SystemStream
    interval_s: int
    left_out: re.Pattern[str] | None
    has_type_tags: bool = False


def reporter_names(config: Mapping[str, str]) -> dict[str, str]:
    """The class of each of `metrics.reporters`, in grete's words where there is one; empty where none is set."""
    names = value_of(config, keys.METRICS_REPORTERS) or ()
    kinds = {name: config.get(keys.METRICS_CLASS.named(name), "").strip() for name in names}
    return {name: aliases.canonical(aliases.REPORTERS, kind) for name, kind in kinds.items()}


def snapshot_reporters(config: Mapping[str, str]) -> list[SnapshotReporter]:
    """Those of `metrics.reporters` that write snapshots.

    Raises:
        ConfigError: one has no stream, or a value is none.
    """
    return [_reporter(config, name) for name, kind in reporter_names(config).items() if kind == SNAPSHOT]


def _reporter(config: Mapping[str, str], name: str) -> SnapshotReporter:
    stream = system_stream_from_names(required_value_of(config, keys.METRICS_STREAM, name))
    interval_s = required_value_of(config, keys.METRICS_INTERVAL, name)
    regex = value_of(config, keys.METRICS_BLACKLIST, name)
    left_out = compile_java(regex, used_by=keys.METRICS_BLACKLIST.named(name)) if regex else None
    return SnapshotReporter(name, stream, interval_s, left_out, _has_type_tags(config, stream))


def _has_type_tags(config: Mapping[str, str], stream: SystemStream) -> bool:
    """Whether the stream's serde is Samza's that writes them; what has no serde is plain JSON, unlike in Samza."""
    serde = StreamSettings(config, stream).msg_serde
    return serde is not None and value_of(config, SERDE_CLASS, serde[1]) == _WITH_TYPE_TAGS
