"""Everybody else: producers of messages, operators with their tools, and the one who breaks things."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grete.assembly.job_handle import job_scope
from grete.config.changes import refused_changes
from grete.config.validate import check
from grete.errors import GreteError, InDoubt, LogError
from grete.keyed_log.base import Entry
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import StopRequest, write_stop_request
from grete.metadata.startpoints import FAN_OUT_NAMESPACE as FAN_OUTS
from grete.metadata.startpoints import NAMESPACE as STARTPOINTS
from grete.metadata.startpoints import (
    decoded_fan_outs,
    decoded_startpoints,
    startpoint_entry,
    startpoint_key,
)
from grete.model.startpoint import Startpoint, StartpointKind
from grete.systems.local import Message
from grete.testing.simulator.application import STORE
from grete.testing.simulator.conduct import JOB
from grete.testing.simulator.faults import OPERATOR_KINDS, PROCESS_KINDS
from grete.testing.simulator.ledger import INPUT, input_ssp
from grete.testing.simulator.scheduler import Killed, Script, Sleep
from grete.testing.simulator.stores import ProcessLog
from grete.testing.simulator.watch import AUDIT
from grete.wire import coordinator_message as codec

if TYPE_CHECKING:
    from grete.testing.simulator.world import World

_KEYS = 12
_PARTITIONS_AT_MOST = 8
CHANGES = (
    ("cluster-manager.container.retry.window.ms", "cluster-manager.container.request.timeout.ms"),
    ("task.max.records.per.batch", "task.callback.timeout.ms"),
    ("cluster-manager.container.memory.mb", "cluster-manager.container.cpu.cores"),
)
"""Keys that are changed together: live, those of a query, those of a process."""
FOREIGN = (
    Entry(b"not json", b"{}"),
    Entry(b'[7,"set-config","task.inputs"]', b'{"values":{"value":"nothing"}}'),
    Entry(b'[1,"somebody-elses","x"]', b"\xff\xfe"),
    Entry(b'[1,"set-job-model","x"]', None),
)


def config(world: World) -> dict[str, str]:
    """A configuration to submit."""
    chance = world.chance
    containers = chance.randint(1, world.containers_at_most)
    return {
        "job.name": "simulated",
        "job.id": "1",
        "task.class": "grete.testing.simulator.application:CountTask",
        "task.inputs": f"local.{INPUT}",
        f"stores.{STORE}.factory": "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory",
        f"stores.{STORE}.key.serde": "string",
        f"stores.{STORE}.msg.serde": "json",
        "systems.local.samza.key.serde": "string",
        "systems.local.samza.msg.serde": "json",
        "systems.local.samza.offset.default": "oldest",
        "job.container.count": str(containers),
        "cluster-manager.container.retry.count": "-1",
        "job.coordinator.monitor-partition-change.frequency.ms": "10000",
        "job.coordinator.monitor-lag.frequency.ms": "60000",
        "job.coordinator.monitor-container.silent.ms": str(chance.choice((12_000, 20_000, 60_000))),
        "task.shutdown.ms": str(chance.choice((4_000, 12_000))),
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
        for _ in range(world.chance.randrange(1, 8)):
            key = f"k{world.chance.randrange(_KEYS)}".encode()
            number += 1
            messages.append(Message(key, str(number).encode(), 0))
        world.system.append(INPUT, messages)


def audit(world: World) -> Script:
    """A tool that appends rows, each once: it asks after those of which it was not told the outcome."""
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


class Operator:
    """Changes a running job, through the tools' own code."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = world.process("operator")
        log = ProcessLog(world.stream_log, world, self._process)
        self._stream = CoordinatorStream(log, self._process.clock, source="grete-cli")

    def script(self) -> Script:
        """One change after the other, as long as the seed has some."""
        world = self._world
        while world.is_busy:
            yield Sleep(world.chance.uniform(4.0, 20.0))
            kind = world.faults.among(OPERATOR_KINDS)
            if kind is None or not world.is_busy:
                continue
            world.note(f"operator: {kind}")
            try:
                getattr(self, "_" + kind.replace("-", "_"))()
            except (GreteError, Killed) as error:
                world.note(f"operator: failed, {error}")

    def _config(self) -> None:
        keys = self._world.chance.choice(CHANGES)
        value = str(self._world.chance.randrange(1_000, 9_000))
        self._set(dict.fromkeys(keys, value))

    def _container_count(self) -> None:
        """Other containers; quite often because one of them hangs."""
        if self._world.faults.has("pause-container") and self._world.chance.random() < 0.5:
            self._world.pause_a_container()
        self._set({"job.container.count": str(self._world.chance.randint(1, self._world.containers_at_most))})

    def _set(self, changes: dict[str, str]) -> None:
        """As `grete config set` does: the whole result is checked before anything is written."""
        old = self._stream.config()
        after = {**old, **changes}
        if not old or refused_changes(old, after) or check(after).errors:
            return
        with self._world.watch.expecting(after):
            self._stream.write_config(changes, run_id=str(self._stream.run_id()), merge=True)

    def _set_once(self) -> None:
        """A change that would lose the job's state; the tool refuses it, and so does a coordinator that sees it."""
        self._set({f"stores.{STORE}.changelog": "local.another"})

    def _unset(self) -> None:
        key = self._world.chance.choice(CHANGES)[0]
        old = self._stream.config()
        if key not in old:
            self._set({key: "5000"})
            return
        with self._world.watch.expecting({name: value for name, value in old.items() if name != key}):
            self._stream.unset_config([key], run_id=str(self._stream.run_id()))

    def _rewind(self) -> None:
        """Startpoints for some partitions of the running job, as `grete checkpoint rewind --live` writes them."""
        if not self._world.watch.has_model:
            return
        world = self._world
        asked = decoded_startpoints(self._stream.raw(STARTPOINTS)).values()
        fan_outs = decoded_fan_outs(self._stream.raw(FAN_OUTS)).values()
        known = [*asked, *(one for fan_out in fan_outs for one in fan_out.values())]
        created_ms = max([world.wall_ms(), *(one.created_ms + 1 for one in known)])
        entries = []
        for partition, offsets in sorted(world.system.offsets(INPUT).items()):
            if world.chance.random() < 0.6:
                to = str(world.chance.randint(0, int(offsets.upcoming)))
                startpoint = Startpoint(StartpointKind.SPECIFIC, created_ms, offset=to)
                entries.append(startpoint_entry(startpoint_key(input_ssp(partition), None), startpoint))
        self._stream.append(entries)

    def _expand(self) -> None:
        partitions = self._world.system.partition_count(INPUT)
        if partitions * 2 <= _PARTITIONS_AT_MOST and self._world.watch.has_model:
            self._world.system.add_partitions(INPUT, partitions * 2)

    def _stop_and_run(self) -> None:
        self.stop()
        self._world.submit_when_stopped()

    def stop(self) -> None:
        """Ask the job to stop, as `grete stop` does."""
        state = self._world.watch.state
        if state is not None:
            write_stop_request(self._stream, StopRequest(state.epoch, 8.0, "simulated"))

    def _take_over(self) -> None:
        self._world.submit(take_over=True)

    def _foreign_record(self) -> None:
        self._stream.log.append([self._world.chance.choice(FOREIGN)])


class Nemesis:
    """Breaks processes and machines."""

    def __init__(self, world: World) -> None:
        self._world = world

    def script(self) -> Script:
        """One fault after the other, as long as the seed has some."""
        world = self._world
        while world.is_busy:
            yield Sleep(world.chance.uniform(2.0, 12.0))
            kind = world.faults.among(PROCESS_KINDS)
            if kind is None or not world.is_busy:
                continue
            world.note(f"nemesis: {kind}")
            getattr(self, "_" + kind.replace("-", "_"))()

    def _kill_container(self) -> None:
        alive = [program for program in self._world.containers.values() if program.process.is_alive]
        if alive:
            self._world.chance.choice(alive).process.kill()

    def _kill_coordinator(self) -> None:
        alive = [program for program in self._world.coordinators if program.process.is_alive]
        if alive:
            self._world.chance.choice(alive).process.kill()

    def _pause_container(self) -> None:
        self._world.pause_a_container()

    def _pause_coordinator(self) -> None:
        running = [program for program in self._world.coordinators if program.process.is_running]
        if running:
            self._world.pause(self._world.chance.choice(running).process)

    def _disk_full(self) -> None:
        self._world.faults.is_disk_full = True
        self._world.scheduler.after(self._world.chance.uniform(1.0, 20.0), self._space_again)

    def _space_again(self) -> None:
        self._world.faults.is_disk_full = False

    def _clock_jump(self) -> None:
        for process in self._world.processes:
            if process.is_alive and self._world.chance.random() < 0.5:
                process.clock.jump_ms += self._world.chance.randrange(-3_600_000, 3_600_000)

    def _compact(self) -> None:
        self._world.stream_log.compact()
        self._world.watch.compacted()
        self._world.ledger.compact()

    def _leader_lost(self) -> None:
        row = self._world.leaderships.rows.get(job_scope(JOB))
        if row is not None:
            row.is_over = True
            self._world.conduct.excuse_leaders()
