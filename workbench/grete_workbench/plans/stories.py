"""Random stories of a job: its first start and what happens to it before each of the next ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from grete.config import aliases
from grete.config.settings import Settings
from grete.grouping.ssp import KEY as SSP_GROUPER

TASK_GROUPER = "task.name.grouper.factory"
COUNT = "job.container.count"
AFFINITY = "job.host-affinity.enabled"
EXPANSION = "job.systemstreampartition.input.expansion.enabled"
BROADCAST = "task.broadcast.inputs"
INPUTS = "task.inputs"
REPLICAS = "job.standbytasks.replication.factor"
IN_MEMORY = "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory"
ON_DISK = "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory"
_GROUPERS = (
    *(name for names in aliases.ALIASES[aliases.SSP_GROUPERS].values() for name in names),
    "org.apache.samza.container.grouper.stream.GroupByPartitionFactory",
)
_TASK_GROUPERS = tuple(
    f"org.apache.samza.container.grouper.task.{name}Factory"
    for name in ("GroupByContainerCount", "GroupByContainerIds", "SingleContainerGrouper")
)
_SYSTEMS = ("kafka", "local", "AaAa", "BBBB", "k")
_STREAMS = (
    "in", "orders", "page-views", "a.b", "AaAa", "BBBB", "AaBB", "s_1", "Aa", "BB", "rules", "ünï", "x", "y", "z", "w"
)  # fmt: skip
"""Some have one hash code in Java, so that they share a bin of a map."""
_HOSTS = ("a", "b", "c", "host-17.example.org", "")

Streams = Mapping[str, int]
"""Partitions by `system.stream`."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the coordinator: what is configured, what there is, and where containers said they ran before."""

    config: Mapping[str, str]
    streams: Streams
    hosts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Story:
    """Starts of one job on one stream. `number` makes it again."""

    number: int
    starts: tuple[Start, ...]


def story(seed: int, number: int) -> Story:
    """The story of a seed and a number; always the same."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - chance, not secrets
    start = _first(random)
    starts = [start]
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        start = replace(start, hosts={})
        for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
            start = random.choice(_CHANGES)(random, start)
        starts.append(start)
    return Story(number, tuple(starts))


def _first(random: Random) -> Start:
    systems = random.sample(_SYSTEMS, random.choice((1, 1, 1, 2, 3)))
    wanted = random.choice((1, 1, 2, 2, 3, 4, 5, 7, 13))
    names = [f"{random.choice(systems)}.{name}" for name in random.sample(_STREAMS, wanted + 1)]
    streams = {name: _partitions(random) for name in names}
    config = {"job.name": "fuzz", INPUTS: ",".join(names[:-1])}
    if random.random() < 0.6:
        config[SSP_GROUPER] = random.choice(_GROUPERS)
    start = Start(config, streams, {})
    for change, chance in (
        (_stores, 0.6),
        (_containers, 0.6),
        (_task_grouper, 0.5),
        (_affinity, 0.4),
        (_broadcast, 0.35),
        (_standby, 0.15),
        (_hosts, 0.3),
        (_expansion, 0.05),
        (_autosizing, 0.05),
    ):
        if random.random() < chance:
            start = change(random, start)
    return start


def _partitions(random: Random) -> int:
    return random.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 8, 12, 16, 32 if random.random() < 0.3 else 7))


def _with(start: Start, **values: str | None) -> Start:
    """The start with these keys set, or removed where the value is None."""
    config = {**start.config, **values}
    return replace(start, config={key: value for key, value in config.items() if value is not None})


def _inputs_of(start: Start) -> list[str]:
    return [str(stream) for stream in Settings.of(start.config).task.inputs]


def _restart(random: Random, start: Start) -> Start:
    return start


def _grow(random: Random, start: Start) -> Start:
    name = random.choice(list(start.streams))
    factor = random.choice((2, 2, 2, 3, 4))
    return replace(start, streams={**start.streams, name: min(start.streams[name] * factor, 64)})


def _resize(random: Random, start: Start) -> Start:
    name = random.choice(list(start.streams))
    return replace(start, streams={**start.streams, name: _partitions(random)})


def _containers(random: Random, start: Start) -> Start:
    most = max(start.streams.values())
    count = random.choice((1, 2, 2, 3, 3, 4, 5, 7, 11, 12, 13, 24, 35))
    return _with(start, **{COUNT: str(count if random.random() < 0.1 else min(count, most))})


def _task_grouper(random: Random, start: Start) -> Start:
    chosen = random.choice(_TASK_GROUPERS)
    return _with(start, **{TASK_GROUPER: chosen, "processor.id": "7" if "Single" in chosen else None})


def _ssp_grouper(random: Random, start: Start) -> Start:
    return _with(start, **{SSP_GROUPER: random.choice(_GROUPERS)})


def _affinity(random: Random, start: Start) -> Start:
    key = random.choice((AFFINITY, AFFINITY, AFFINITY, "yarn.samza.host-affinity.enabled"))
    return _with(start, **{key: random.choice(("true", "true", "false"))})


def _hosts(random: Random, start: Start) -> Start:
    count = random.choice((1, 2, 3, 4, 13))
    chosen = {str(random.randrange(count + 1)): random.choice(_HOSTS) for _ in range(count)}
    return replace(start, hosts=chosen)


def _broadcast(random: Random, start: Start) -> Start:
    if random.random() < 0.15:
        return _with(start, **{BROADCAST: None})
    inputs = _inputs_of(start)
    beside = [name for name in start.streams if name not in inputs]
    entries = []
    for name in random.sample(beside + inputs, random.choice((1, 1, 2)) if len(start.streams) > 1 else 1):
        last = start.streams[name] - 1
        low, high = sorted((random.randint(0, last), random.randint(0, last)))
        entries.append(f"{name}#{low}" if random.random() < 0.5 else f"{name}#[{low}-{high}]")
    return _with(start, **{BROADCAST: ",".join(entries)})


def _inputs(random: Random, start: Start) -> Start:
    inputs = _inputs_of(start)
    if random.random() < 0.4 and len(inputs) > 1:
        inputs.remove(random.choice(inputs))
    else:
        inputs += [name for name in start.streams if name not in inputs][:1]
    random.shuffle(inputs)
    return _with(start, **{INPUTS: random.choice((",", ", ")).join(inputs)})


def _standby(random: Random, start: Start) -> Start:
    return _with(start, **{REPLICAS: random.choice(("1", "2", "2", "3"))})


def _stores(random: Random, start: Start) -> Start:
    factories = random.choice(((ON_DISK,), (ON_DISK,), (ON_DISK, IN_MEMORY), (IN_MEMORY,), ()))
    kept = {key: None for key in start.config if key.startswith("stores.")}
    added = {f"stores.s{number}.factory": factory for number, factory in enumerate(factories)}
    return _with(start, **{**kept, **added})


def _expansion(random: Random, start: Start) -> Start:
    return _with(start, **{EXPANSION: random.choice(("true", "false"))})


def _autosizing(random: Random, start: Start) -> Start:
    enabled, count = random.choice(("true", "true", "false")), str(random.choice((1, 2, 3)))
    return _with(start, **{"job.autosizing.enabled": enabled, "job.autosizing.container.count": count})


_CHANGES: tuple[Callable[[Random, Start], Start], ...] = (
    *(_restart, _grow, _grow, _grow, _containers, _containers, _hosts, _hosts, _broadcast, _inputs, _inputs),
    *(_resize, _task_grouper, _ssp_grouper, _affinity, _standby, _stores, _expansion, _autosizing),
)
