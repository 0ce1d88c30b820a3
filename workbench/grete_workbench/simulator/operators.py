"""An operator who changes a running job, through the tools' own code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grete.config.rules.validate import check
from grete.coordination.memory import MemoryCoordination
from grete.errors import GreteError
from grete.keyed_log.base import Entry
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.container_requests import StoredContainerRequest, write_container_request
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import Request, RequestKind, StopRequest, write_request, write_stop_request
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import FAN_OUT_NAMESPACE as FAN_OUTS
from grete.metadata.startpoints import NAMESPACE as STARTPOINTS
from grete.metadata.startpoints import (
    decoded_fan_outs,
    decoded_startpoints,
    startpoint_entry,
    startpoint_key,
)
from grete.model.fence import job_scope
from grete.model.ids import ContainerId
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete_workbench.simulator.application import STORE, UNFIT
from grete_workbench.simulator.conduct import JOB
from grete_workbench.simulator.ledger import INPUT, input_ssp
from grete_workbench.simulator.scheduler import Killed, Script, Sleep
from grete_workbench.simulator.stores import ProcessLog
from grete_workbench.simulator.traffic import CHANGES

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World

_PARTITIONS_AT_MOST = 8
FOREIGN = (
    Entry(b"not json", b"{}"),
    Entry(b'[7,"set-config","task.inputs"]', b'{"values":{"value":"nothing"}}'),
    Entry(b'[1,"somebody-elses","x"]', b"\xff\xfe"),
    Entry(b'[1,"set-job-model","x"]', None),
)


class Operator:
    """Changes a running job, through the tools' own code."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = world.process("operator")
        self._asked = 0
        log = ProcessLog(world.stream_log, world, self._process)
        self._stream = CoordinatorStream(log, self._process.clock, source="grete-cli")

    def script(self) -> Script:
        """One change after the other, as long as the seed has some."""
        world = self._world
        while world.is_busy:
            yield Sleep(world.chance.uniform(4.0, 20.0))
            kind = world.faults.among(world.processors.operator_kinds)
            if kind is None or not world.is_busy:
                continue
            if world.watch.ended is not None and world.watch.ended.state == "failed":
                world.submit()  # more containers have failed than its policy allows
            world.note(f"operator: {kind}")
            try:
                getattr(self, "_" + kind.replace("-", "_"))()
            except (GreteError, Killed) as error:
                world.note(f"operator: failed, {error}")

    def _config(self) -> None:
        keys = self._world.chance.choice(CHANGES)
        value = str(self._world.chance.randrange(1_000, 9_000))
        self._set(dict.fromkeys(keys, value))

    def _unfit_config(self) -> None:
        """Nobody can know before the container does, nor that it is no number of a container."""
        self._set({UNFIT: str(self._world.chance.randrange(self._world.containers_at_most))})

    def _container_count(self) -> None:
        """Other containers; quite often because one of them hangs."""
        if self._world.faults.has("pause-container") and self._world.chance.random() < 0.5:
            self._world.pause_a_container()
        self._set({"job.container.count": str(self._other_count())})

    def _other_count(self) -> int:
        """Where a task that is given away matters, as many as make most of them move."""
        most = self._world.containers_at_most
        if self._world.faults.has("forged-pause"):
            return most if self._stream.settings().job.container_count == 1 else 1
        return self._world.chance.randint(1, most)

    def _set(self, changes: dict[str, str]) -> None:
        """As `grete config set` does: the whole result is checked before anything is written."""
        old = self._stream.config()
        after = {**old, **changes}
        if not old or ConfigInForce(self._stream).refusals(after) or check(after).errors:
            return
        with self._world.watch.expecting(after):
            self._stream.change_config(dict(changes), run_id=str(self._stream.run_id()))

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
            self._stream.change_config({key: None}, run_id=str(self._stream.run_id()))

    def _rewind(self) -> None:
        """Startpoints for some partitions of the running job, as `grete checkpoint rewind --live` writes them."""
        world = self._world
        if not world.watch.has_model:
            return
        created_ms = max([world.wall_ms(), *(one.created_ms + 1 for one in self._startpoints())])
        entries = []
        for partition, offsets in sorted(world.system.offsets(INPUT).items()):
            if world.chance.random() < 0.6:
                startpoint = self._startpoint(created_ms, int(offsets.upcoming))
                owner = world.watch.owner(partition)
                key = startpoint_key(input_ssp(partition), world.chance.choice((None, owner)))
                entries.append(startpoint_entry(key, startpoint))
                if world.chance.random() < 0.2:
                    discard = StateRequest(StateChoice.DISCARD, created_ms)
                    entries.append(state_entry(self._stream, owner, discard))
        self._stream.append(entries)

    def _startpoints(self) -> Iterator[Startpoint]:
        yield from decoded_startpoints(self._stream.raw(STARTPOINTS)).values()
        for fan_out in decoded_fan_outs(self._stream.raw(FAN_OUTS)).values():
            yield from fan_out.values()

    def _startpoint(self, created_ms: int, upcoming: int) -> Startpoint:
        specific = StartpointKind.SPECIFIC
        kind = self._world.chance.choice((specific, specific, StartpointKind.OLDEST, StartpointKind.UPCOMING))
        offset = str(self._world.chance.randint(0, upcoming)) if kind is specific else None
        return Startpoint(kind, created_ms, offset=offset)

    def _container_request(self) -> None:
        """Restart a container, or stop it and start it again a while later."""
        containers = sorted({program.id for program in self._world.containers.values()})
        if containers:
            container, what = (
                self._world.chance.choice(containers),
                self._world.chance.choice(("restart", "stop")),
            )
            self._ask(container, what)
            if what == "stop":
                self._world.scheduler.after(
                    self._world.chance.uniform(5.0, 20.0), lambda: self.start(container)
                )

    def start(self, container: ContainerId) -> None:
        """Ask for a container to be started, if there is a leader."""
        try:
            self._ask(container, "start")
        except (GreteError, Killed) as error:
            self._world.note(f"operator: failed, {error}")

    def _ask(self, container: ContainerId, what: str) -> None:
        epoch = self._leading_epoch()
        if epoch is not None:
            self._asked += 1
            request = StoredContainerRequest(container, what, epoch, 8.0, f"request-{self._asked}")
            write_container_request(self._stream, request)

    def drain(self) -> None:
        """Ask the job to end when it has read what is there, as `grete drain` does."""
        epoch = self._leading_epoch()
        if epoch is not None:
            write_request(self._stream, Request(RequestKind.DRAIN, epoch, "simulated"))

    def _leading_epoch(self) -> int | None:
        """The leader, as the tools find it; None without one."""
        election = MemoryCoordination(self._process.clock, leaderships=self._world.leaderships)
        return election.leading_epoch(job_scope(JOB))

    def _expand(self) -> None:
        partitions = self._world.system.partition_count(INPUT)
        if partitions * 2 <= _PARTITIONS_AT_MOST and self._world.watch.has_model:
            self._world.system.add_partitions(INPUT, partitions * 2)

    def _stop_and_run(self) -> None:
        """Stop the job and run it again; quite often its coordinator dies while it stops."""
        self.stop()
        if self._world.faults.has("kill-coordinator") and self._world.chance.random() < 0.5:
            self._world.scheduler.after(self._world.chance.uniform(1.0, 6.0), self._world.kill_the_leader)
        self._world.submit_when_stopped()

    def stop(self) -> None:
        """Ask the job to stop, as `grete stop` does."""
        epoch = self._leading_epoch()
        if epoch is not None:
            write_stop_request(self._stream, StopRequest(epoch, 8.0, "simulated"))

    def _take_over(self) -> None:
        self._world.submit(take_over=True)

    def _foreign_record(self) -> None:
        self._stream.log.append([self._world.chance.choice(FOREIGN)])
