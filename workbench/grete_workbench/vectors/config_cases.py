"""Checks of config.json and config_env_and_properties.json: MapConfig, JobConfig, TaskConfig, StreamUtil, rewriters.

Stricter than `result_of`: where the real one's message is given, ours begins with its words (or our cause is them).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from grete.config import java_values
from grete.config.key_tables import coordinator, job
from grete.config.properties import parse_properties
from grete.config.rewriters import EnvironmentConfigRewriter
from grete.config.settings import Settings
from grete.config.settings.streams import system_stream_from_names
from grete.config.values import required_value_of
from grete.errors import ConfigError
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import SystemStream
from grete_workbench.vectors.map_config import MapConfig, layered, map_config_hash
from grete_workbench.vectors.registry import COMMENTS, Case, Difference, checker, same, throws

_GETTER = re.compile(r"get(Int|Long|Short|Double|Boolean|List)(?:_default_(\w+))?")


@checker("config", "config_env_and_properties", knows=lambda case: case.get("op") in _OPS)
def check_config(case: Case) -> None:
    """One case of either file, by its `op`."""
    check = _OPS.get(case["op"])
    if check is None:
        raise Difference(f"no check for the operation {case['op']!r}; known are {', '.join(_OPS)}")
    check(case)


def _compare(what: str, compute: Callable[[], Any], expected: Any) -> None:
    try:
        got = compute()
    except ConfigError as error:
        if not throws(expected):
            raise Difference(f"{what}: expected {expected!r}, we raise {error}") from error
        message = expected.get("message")
        ours = (str(error), str(error.__cause__))
        if (
            message is not None
            and ours[0] != message
            and ours[1] != message
            and not ours[0].startswith(message)
        ):
            raise Difference(f"{what}: the real one says {message!r}, we say {ours[0]!r}") from error
        return
    if throws(expected):
        raise Difference(f"{what}: the real one throws {expected['throws']}, we return {got!r}")
    same(what, got, expected)


def _typed(case: Case) -> None:
    config = MapConfig({"k": case["value"]} if "value" in case else {})
    for field, expected in case.items():
        getter = _GETTER.fullmatch(field)
        if getter is not None:
            _compare(field, lambda match=getter: _get(config, match[1], match[2]), expected)  # type: ignore[misc]
        elif field == "get":
            same(field, config.get("k"), expected)
        elif field == "put":
            _compare(field, lambda: config.__setitem__("k", "v"), expected)
        elif field not in ("op", "value") and field not in COMMENTS:
            raise Difference(f"no check for the field {field!r}")


def _get(config: MapConfig, kind: str, default: str | None) -> Any:
    if kind == "List":
        return config.get_list("k") if default is None else config.get_list("k", [default])
    if kind == "Boolean":
        return config.get_boolean("k", None if default is None else default == "true")
    if kind == "Double":
        value = config.get_double("k", None if default is None else float(default))
        return java_values.double_text(value)
    number = None if default is None else int(default)
    getters = {"Int": config.get_int, "Long": config.get_long, "Short": config.get_short}
    return getters[kind]("k", number)


def _subset(case: Case) -> None:
    config = MapConfig(case["config"])
    for field, strip in (("strip", True), ("keep", False)):
        if field in case:
            same(field, dict(config.subset(case["prefix"], strip=strip)), case[field])


def _regex_subset(case: Case) -> None:
    _compare(
        case["regex"], lambda: dict(MapConfig(case["config"]).regex_subset(case["regex"])), case["result"]
    )


def _sanitize(case: Case) -> None:
    config = MapConfig(case["config"])
    same("sanitize", dict(config.sanitize()), case["result"])
    if "equals_hash" in case:
        same("equals_hash", map_config_hash(config), case["equals_hash"])


def _layered(case: Case) -> None:
    same("layered", dict(layered(case["maps"])), case["result"])


def _stream_text(stream: SystemStream) -> str:
    return f"SystemStream [system={stream.system}, stream={stream.stream}]"


_SEVERAL_SYSTEMS = {f"systems.{name}.samza.factory": "kafka" for name in ("first", "second")}
"""Where none is configured, the coordinator stream is in the embedded one, which Samza has not."""
_JOB_FIELDS: Mapping[str, Callable[[Settings], Any]] = {
    "name": lambda s: s.raw.get(job.JOB_NAME.name),
    "job_id": lambda s: s.job.written_id.id,
    "coordinator_system": lambda s: s.coordinator.system,
    "coordinator_system_or_null": lambda s: s.raw.get(coordinator.SYSTEM.name, _default_system(s)),
    "default_system": lambda s: _default_system(s),
    "container_count": lambda s: s.job.container_count,
    "ssp_grouper": lambda s: s.job.ssp_grouper,
    "task_name_grouper": lambda s: s.job.task_name_grouper,
    "ssp_proxy_enabled": lambda s: s.job.is_expansion_enabled,
    "ssp_mapper": lambda s: required_value_of(s.raw, job.SSP_MAPPER),
    "metadata_store_factory": lambda s: required_value_of(s.raw, coordinator.METADATA_STORE),
    "standby_enabled": lambda s: s.job.standby_replicas > 1,
    "standby_rf": lambda s: s.job.standby_replicas,
    "autosizing_enabled": lambda s: s.job.is_autosizing,
    "elasticity_factor": lambda s: s.job.elasticity_factor,
    "host_affinity": lambda s: s.job.is_host_affinity,
    "monitor_partition_change_ms": lambda s: round(s.coordinator.monitor_partitions_s * 1000),
    "startpoint_enabled": lambda s: s.job.is_startpoint_enabled,
    "coordinator_stream_factory": lambda s: required_value_of(s.raw, coordinator.STREAM_FACTORY),
    "debounce_ms": lambda s: required_value_of(s.raw, coordinator.DEBOUNCE),
    "coordinator_system_stream": lambda s: _stream_text(
        SystemStream(s.coordinator.system, stream_name(s.job.id))
    ),
    "coordinator_stream_config": lambda s: _coordinator_stream_config(s),
}


def _default_system(settings: Settings) -> str | None:
    return settings.raw.get(job.DEFAULT_SYSTEM.name)


def _coordinator_stream_config(settings: Settings) -> dict[str, str]:
    """As containers get it, and the interval that Samza's read from there."""
    interval = str(round(settings.coordinator.monitor_partitions_s * 1000))
    name = {job.JOB_NAME.name: settings.job.id.name}
    return {**name, **settings.coordinator.for_containers, coordinator.MONITOR_PARTITIONS_MS.name: interval}


def _job_config(case: Case) -> None:
    settings = Settings.of({**_SEVERAL_SYSTEMS, **case["config"]})
    for field, expected in case.items():
        if field in ("op", "config") or field in COMMENTS:
            continue
        compute = _JOB_FIELDS.get(field)
        if compute is None:
            raise Difference(f"no check for the field {field!r}")
        if field == "container_count" and expected < 1:
            expected = {"throws": "a job without containers is refused here"}
        _compare(field, lambda compute=compute: compute(settings), expected)  # type: ignore[misc]


def _broadcast(case: Case) -> None:
    config = MapConfig({"task.broadcast.inputs": case["value"]})
    _compare(
        case["value"],
        lambda: [
            [s.system, s.stream, s.partition, s.key_bucket]
            for s in sorted(Settings.of(config).task.broadcast_inputs)
        ],
        case["result"],
    )


def _task_inputs(case: Case) -> None:
    config = MapConfig({"task.inputs": case["value"]})
    _compare(
        case["value"],
        lambda: sorted(f"{s.system}|{s.stream}" for s in Settings.of(config).task.inputs),
        case["result"],
    )


def _names(case: Case) -> None:
    def compute() -> list[str]:
        stream = system_stream_from_names(case["value"])
        return [stream.system, stream.stream, _stream_text(stream), str(stream)]

    _compare(case["value"], compute, case["result"])


def _escape(case: Case) -> None:
    escaped = case["value"].replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
    same(case["value"], escaped, case["result"])


def _rewrite(case: Case) -> None:
    rewriter = EnvironmentConfigRewriter(case["env"])
    _compare("rewrite", lambda: rewriter.rewrite("env", case["config"]), case["result"])


def _rename_key(case: Case) -> None:
    _compare(case["input"], lambda: EnvironmentConfigRewriter.rename_key(case["input"]), case["result"])


def _properties(case: Case) -> None:
    text = case["file_utf8"].encode("utf-8").decode("iso-8859-1")
    _compare("properties", lambda: parse_properties(text, origin="file"), case["result"])


_OPS: Mapping[str, Callable[[Case], None]] = {
    "typed": _typed,
    "missing": _typed,
    "subset": _subset,
    "regexSubset": _regex_subset,
    "sanitize": _sanitize,
    "layered": _layered,
    "JobConfig": _job_config,
    "broadcast": _broadcast,
    "task.inputs": _task_inputs,
    "StreamUtil.getSystemStreamFromNames": _names,
    "Util.envVarEscape": _escape,
    "rewrite": _rewrite,
    "renameKey": _rename_key,
    "properties": _properties,
}
