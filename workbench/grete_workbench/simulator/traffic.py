"""Traffic of a job from outside: its configuration, its messages, rows of a tool that writes to its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.errors import InDoubt, LogError
from grete.keyed_log.base import Entry
from grete.systems.local.system import Message
from grete.wire import coordinator_message as codec
from grete_workbench.simulator.application import STORE
from grete_workbench.simulator.ledger import INPUT
from grete_workbench.simulator.scheduler import Killed, Script, Sleep
from grete_workbench.simulator.stores import ProcessLog
from grete_workbench.simulator.watch import AUDIT

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World

_KEYS = 12
CHANGES = (
    ("cluster-manager.container.retry.window.ms", "cluster-manager.container.request.timeout.ms"),
    ("task.max.records.per.batch", "task.callback.timeout.ms"),
    ("cluster-manager.container.memory.mb", "cluster-manager.container.cpu.cores"),
)
"""Keys that are changed together: live, those of a query, those of a process."""


def config(world: World) -> dict[str, str]:
    """A configuration to submit."""
    chance = world.chance
    containers = chance.randint(1, world.containers_at_most)
    return {
        "job.name": "simulated",
        "job.id": "1",
        "task.class": "grete_workbench.simulator.application:CountTask",
        "task.inputs": f"local.{INPUT}",
        f"stores.{STORE}.factory": "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory",
        f"stores.{STORE}.key.serde": "string",
        f"stores.{STORE}.msg.serde": "json",
        "systems.local.samza.key.serde": "string",
        "systems.local.samza.msg.serde": "json",
        "systems.local.samza.offset.default": "oldest",
        "job.container.count": str(containers),
        "cluster-manager.container.retry.count": chance.choice(("-1", "-1", "-1", "2")),
        "job.coordinator.monitor-partition-change.frequency.ms": "10000",
        "job.coordinator.monitor-lag.frequency.ms": "60000",
        "job.coordinator.monitor-container.silent.ms": str(chance.choice((12_000, 20_000, 60_000))),
        "task.shutdown.ms": str(chance.choice((4_000, 12_000))),
        **world.processors.config(),
        **{key: str(chance.randrange(1_000, 9_000)) for keys in CHANGES for key in keys},
    }


def produce(world: World) -> Script:
    """Append messages to the input, whatever else happens."""
    number = 0
    while world.is_busy:
        yield Sleep(world.chance.uniform(1.0, 8.0))
        if not world.is_busy:
            return
        messages = []
        keys = world.chance.choice((_KEYS, 1))
        first = world.chance.randrange(_KEYS)
        for _ in range(world.chance.randrange(1, 8)):
            key = f"k{(first + world.chance.randrange(keys)) % _KEYS}".encode()
            number += 1
            messages.append(Message(key, str(number).encode(), 0))
        world.system.append(INPUT, messages)


def audit(world: World) -> Script:
    """A tool that appends rows, each once: it looks up those whose outcome it does not know."""
    process = world.process("tool")
    log = ProcessLog(world.stream_log, world, process)
    row = 0
    while world.is_busy:
        yield Sleep(world.chance.uniform(2.0, 10.0))
        row += 1
        while not write_row(log, row):
            yield Sleep(0.5)
        world.watch.acknowledged(row)


def write_row(log: ProcessLog, row: int) -> bool:
    """Append a row with its id; False when it has to be tried again."""
    append_id = f"row-{row}"
    try:
        log.append([Entry(codec.encode_key(AUDIT, str(row)), b"{}")], append_id=append_id)
        return True
    except InDoubt:
        return log.resolve(append_id) is not None
    except (LogError, Killed):
        return False
