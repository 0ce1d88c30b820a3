"""What a configuration leaves to somebody else: to descriptors in the application's Java code, or to a rewriter.

Stand-ins take the place of what is not known, so that the rest is validated without errors that follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import java_values
from grete.config.key import CLASS
from grete.config.key_tables.coordinator import SYSTEM as COORDINATOR_SYSTEM
from grete.config.key_tables.job import (
    APP_CLASS,
    CHANGELOG_SYSTEM,
    DEFAULT_SYSTEM,
    REWRITER_REGEX,
    TASK_CLASS,
)
from grete.config.key_tables.streams import STREAM_SYSTEM, SYSTEM_FACTORY
from grete.config.key_tables.task import CHECKPOINT_SYSTEM, INPUTS, OUTPUTS
from grete.config.rewriters import InputRegex, StreamLister, input_regexes, regex_rewriters, rewriter_names
from grete.config.settings import Settings
from grete.config.settings.streams import stream_ids
from grete.config.settings.systems import EMBEDDED_SYSTEM, systems_without_factory
from grete.errors import ConfigError
from grete.migration.note import Note, Notes, NoteSection, Outcome

ASK = "--ask-systems"
_SERVERS = "systems.%s.producer.bootstrap.servers"
_STAND_IN = "not-known-yet"
_MOST_NAMED = 10
_NAMING = (DEFAULT_SYSTEM, CHANGELOG_SYSTEM, CHECKPOINT_SYSTEM, COORDINATOR_SYSTEM)


def is_in_code(config: Mapping[str, str]) -> bool:
    """Whether the application's Java code names its inputs: it is described there, and there is no `task.inputs`."""
    app, task = config.get(APP_CLASS.name, "").strip(), config.get(TASK_CLASS.name, "").strip()
    is_java = bool(app) and CLASS.problem(app) is not None
    return (is_java or (not app and not task and "app.main.class" in config)) and not _has_inputs(config)


def inputs_not_known(config: Mapping[str, str]) -> Notes:
    """The note on inputs that the configuration does not name."""
    if _has_inputs(config):
        return
    if is_in_code(config):
        yield _in_code(config)
    elif not rewriter_names(config):
        yield Note(
            NoteSection.APPLICATION,
            INPUTS.name,
            Outcome.BLOCKS,
            "not set: the streams that the application reads are in no file that was given",
            f"set {INPUTS.name}=system.stream[,system.stream]; a job of several files is checked with all of them, "
            "--check FILE FILE",
        )


def regexes(config: Mapping[str, str], list_streams: StreamLister | None) -> Notes:
    """The notes on regexes that choose inputs; without `list_streams` nobody is asked what they choose."""
    for name in regex_rewriters(config):
        key = REWRITER_REGEX.named(name)
        if key in config and list_streams is None:
            yield Note(
                NoteSection.STREAMS,
                key,
                Outcome.AS_IS,
                "the streams it chooses are not known until the brokers are asked",
                f"{ASK} asks them now; grete run asks them at each submit, and while the job runs",
            )
        elif key in config and list_streams is not None:
            yield _chosen(config, name, list_streams)


def _chosen(config: Mapping[str, str], name: str, list_streams: StreamLister) -> Note:
    regex = InputRegex.of(name, config)
    chosen = sorted(
        stream for stream in list_streams(regex.system, Settings.of(config)) if regex.chooses(stream)
    )
    more = f" and {len(chosen) - _MOST_NAMED} more" if len(chosen) > _MOST_NAMED else ""
    says = f"chooses {', '.join(chosen[:_MOST_NAMED]) or 'no stream that there is now'}{more}"
    return Note(NoteSection.STREAMS, REWRITER_REGEX.named(name), Outcome.AS_IS, says)


def stand_ins(config: Mapping[str, str]) -> dict[str, str]:
    """Keys that take the place of what is in the code, or of what a rewriter will set."""
    if _has_inputs(config):
        return {}
    if is_in_code(config):
        return _described(config)
    return {INPUTS.name: ",".join(_rewritten(config))} if rewriter_names(config) else {}


def _has_inputs(config: Mapping[str, str]) -> bool:
    return bool(config.get(INPUTS.name, "").strip())


def _rewritten(config: Mapping[str, str]) -> Iterator[str]:
    try:
        systems = sorted({regex.system for regex in input_regexes(config)})
    except ConfigError:
        systems = []  # no regular expression: validation says so
    for system in systems or [_home(config)]:
        yield f"{system}.{_STAND_IN}"


def _home(config: Mapping[str, str]) -> str:
    """The system of the inputs and of what the job remembers, as far as can be told."""
    settings = Settings.of(config)
    known = settings.system_names
    able = (
        name
        for name in _systems(config)
        if name not in known or settings.system(name).capabilities.kafka_topics
    )
    return next(able, "kafka")


def _systems(config: Mapping[str, str]) -> list[str]:
    """Every system that the configuration names, with or without a factory; the likeliest for inputs first."""
    names = [config.get(key.name, "").strip() for key in _NAMING]
    settings = Settings.of(config)
    names += [name for name in settings.system_names if settings.system(name).capabilities.kafka_topics]
    names += [*settings.system_names, *systems_without_factory(config)]
    names += [config.get(STREAM_SYSTEM.named(stream), "") for stream in stream_ids(config)]
    streams = java_values.split_commas(config.get(OUTPUTS.name, ""))
    streams += [
        value for key, value in config.items() if key.startswith("metrics.") and key.endswith(".stream")
    ]
    streams += [settings.store(store).changelog or "" for store in settings.store_names]
    names += [stream.partition(".")[0] for stream in streams if "." in stream]
    return [name for name in dict.fromkeys(names) if name and name != EMBEDDED_SYSTEM]


def _described(config: Mapping[str, str]) -> dict[str, str]:
    known = Settings.of(config).system_names
    home = _home(config)
    described = {INPUTS.name: f"{home}.{_STAND_IN}"}
    for system in dict.fromkeys((home, *_systems(config))):
        if system not in known:
            described[SYSTEM_FACTORY.named(system)] = "kafka"
            if not any(
                f"systems.{system}.{one}.bootstrap.servers" in config for one in ("producer", "consumer")
            ):
                described[_SERVERS % system] = f"{_STAND_IN}:9092"
    if COORDINATOR_SYSTEM.name not in config and DEFAULT_SYSTEM.name not in config:
        described[COORDINATOR_SYSTEM.name] = home
    return described


def _in_code(config: Mapping[str, str]) -> Note:
    described = _described(config)
    home = _home(config)
    ids = stream_ids(config)
    inputs = ",".join(f"{config.get(STREAM_SYSTEM.named(one)) or home}.{one}" for one in ids)
    lines = [f"{INPUTS.name}={inputs or f'{home}.page-views'}"]
    lines += [f"{key}={value}" for key, value in described.items() if key.endswith(".samza.factory")]
    lines += [f"{key}=host:9092" for key in described if key.endswith(".bootstrap.servers")]
    if COORDINATOR_SYSTEM.name in described:
        lines.append(f"{COORDINATOR_SYSTEM.name}={home}")
    lines.append(f"systems.{home}.streams.{ids[0] if ids else 'page-views'}.samza.msg.serde=json")
    lines.append("stores.counts.factory=grete.store.sqlite, with .key.serde, .msg.serde and .changelog")
    return Note(
        NoteSection.APPLICATION,
        INPUTS.name,
        Outcome.BLOCKS,
        "not set: the descriptors of the Java code name the inputs, and systems, stores and serdes that miss here",
        f"write what they say, for example {'; '.join(lines)}. A Python class may name inputs, serdes and stores in "
        "its describe instead",
    )
