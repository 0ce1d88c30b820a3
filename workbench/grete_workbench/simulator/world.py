"""The simulated world: stores, clocks, network, processes, and what goes wrong with them, all from one seed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from grete.coordination.memory import MemoryLeaderships
from grete.errors import InDoubt, LogError, StorageFull
from grete.keyed_log.memory import MemoryKeyedLog
from grete.model.ids import ContainerId
from grete.model.streams import StreamSpec
from grete.sqlite_file.fences import seen_epoch
from grete.systems.local.system import LocalSystem
from grete_workbench.simulator.application import OUTPUT, STORE
from grete_workbench.simulator.conduct import JOB, Conduct
from grete_workbench.simulator.container import ContainerProgram
from grete_workbench.simulator.coordinator import CoordinatorProgram
from grete_workbench.simulator.faults import Faults
from grete_workbench.simulator.ledger import INPUT, Ledger
from grete_workbench.simulator.nemesis import Nemesis
from grete_workbench.simulator.network import Network
from grete_workbench.simulator.operators import Operator
from grete_workbench.simulator.processor import ProcessorProgram
from grete_workbench.simulator.processors import Processors
from grete_workbench.simulator.scheduler import (
    Killed,
    Process,
    ProcessClock,
    Scheduler,
    Script,
    Server,
    Sleep,
)
from grete_workbench.simulator.share import ShareProgram
from grete_workbench.simulator.traffic import audit, config, produce
from grete_workbench.simulator.watch import StreamWatch

CHANGELOG = f"{JOB}-{STORE}-changelog"
_TRACED = 200
_SKEW_MS = 3 * 3_600_000
"""How wrong wall clocks are; with the jumps below twelve hours, after which startpoints expire."""
_NETWORK_S = 0.01
_STALLS_AT_ONCE = 2
_MACHINE_S = (6.0, 30.0)


class World:
    """Everything that outlives a process, and the list of processes that live."""

    def __init__(
        self, seed: int, directory: Path, emphasis: Sequence[str] = (), *, embedded: bool = False
    ) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self.faults = Faults.draw(self.chance, emphasis, embedded=embedded)
        self.directory = directory
        self.scheduler = Scheduler()
        store_clock = self._store_clock = ProcessClock(self.scheduler, rate=1.0, wall_offset_ms=0)
        self.stream_log = MemoryKeyedLog(store_clock)
        self.leaderships = MemoryLeaderships()
        self.system = LocalSystem(directory / "local", store_clock)
        partitions = self.chance.choice((1, 2, 2, 3, 4))
        self.containers_at_most = min(partitions, 3)
        self.system.create_stream(StreamSpec(INPUT, partitions))
        self.system.create_stream(StreamSpec(OUTPUT, self.chance.choice((1, 3))))
        self.system.create_stream(StreamSpec(CHANGELOG, partitions, compacted=True))
        self.ledger = Ledger(self.system, JOB, CHANGELOG)
        self.watch = StreamWatch(self.stream_log, store_clock, self.ledger)
        self.servers: dict[str, Server] = {}
        self.trace: deque[str] = deque(maxlen=_TRACED)
        self.digest = sha256()
        self.hosts = ["a", "b"] if self.faults.has("two-hosts") and not embedded else ["a"]
        self.coordinators: list[CoordinatorProgram] = []
        self.containers: dict[str, ContainerProgram] = {}
        self.shares: list[ShareProgram] = []
        self.is_busy = True
        self.kills_reach = not self.faults.has("kills-lost")
        self._asked_to_stop = -1
        self.processes: list[Process] = []
        self.conduct = Conduct(self)
        self._network = Network(self)
        self._submits = 0
        self._stalls = 0
        self.cells_are_silent = False
        self.processors = Processors(self, exist=embedded)
        self.operator = Operator(self)

    def begin(self) -> None:
        """Submit the job, with a standby or two, and start all processes."""
        self.submit()
        if not self.processors.exist:
            for _ in range(self.chance.choice((0, 1, 1, 2))):
                self._coordinate(None, take_over=False)
        nemesis = Nemesis(self)
        scripts = [produce(self), audit(self), self.operator.script(), nemesis.script(), nemesis.shares()]
        if self.processors.exist:
            scripts.append(nemesis.members())
        for script in scripts:
            self.process("somebody").spawn(script)

    def close(self) -> None:
        """Release what the stores hold."""
        self.system.close()

    def calm(self) -> None:
        """From now on nothing goes wrong, nothing is changed, and no more messages come."""
        self.note("calm")
        self.is_busy = False
        self.faults.calm()
        self.kills_reach = True
        self.cells_are_silent = False
        for process in self.processes:
            process.resume()

    def go_on(self) -> None:
        """Run the job if it does not run, as an operator would who wants it to, and what of it he had stopped."""
        if self.watch.ended is not None and self.ledger.missing():
            self.submit()
        self.processors.go_on()
        for id_ in sorted(self.held()):
            self.operator.start(id_)

    def follows(self) -> bool:
        """Whether the leader serves the configuration that is in force; a job that has ended need not."""
        if self.watch.ended is not None:
            return True
        state = self.watch.state
        leader = None if state is None else self.server(state.url)
        return isinstance(leader, CoordinatorProgram) and leader.served == self.watch.config

    def held(self) -> set[ContainerId]:
        """The containers that an operator has stopped, according to the leader."""
        state = self.watch.state
        leader = None if state is None else self.server(state.url)
        if not isinstance(leader, CoordinatorProgram) or leader.loop is None:
            return set()
        return {id_ for id_, container in leader.loop.state.containers.items() if container.held}

    def stops(self) -> bool:
        """Whether the job has stopped; requests it of the leader, unless it was requested already."""
        state = self.watch.state
        if state is not None and state.epoch != self._asked_to_stop:
            self._asked_to_stop = state.epoch
            self.chance.choice((self.operator.stop, self.operator.drain))()
        return self.watch.ended is not None

    def alive(self) -> list[str]:
        """The containers and shares that run, or are paused."""
        programs: list[ContainerProgram | ShareProgram] = [*self.containers.values(), *self.shares]
        processes = [program.process for program in programs]
        processes += [processor.process for processor in self.processors.living()]
        return sorted(process.name for process in processes if process.is_alive)

    def wall_ms(self) -> int:
        """The time of a clock that is right."""
        return self._store_clock.wall_ms()

    def note(self, text: str) -> None:
        """Add a line to the trace, which is the same for the same seed and commit."""
        line = f"{self.scheduler.now_s:9.3f} {text}"
        self.trace.append(line)
        self.digest.update(line.encode())

    # --- processes ---

    def process(self, name: str, clock: ProcessClock | None = None) -> Process:
        """A new process with clocks of its own, unless it is a thread of another one."""
        process = Process(self.scheduler, name, clock or self._clock(), self._network.deliver)
        process.on_end.append(lambda: self.note(f"{name} ends: {process.exit_code} {process.reason}"))
        self.processes.append(process)
        self.note(f"{name} begins")
        return process

    def _clock(self) -> ProcessClock:
        skewed = self.faults.strikes("skewed-clocks")
        rate = self.chance.uniform(0.85, 1.15) if skewed else 1.0
        offset_ms = round(self.chance.uniform(-_SKEW_MS, _SKEW_MS)) if skewed else 0
        return ProcessClock(self.scheduler, rate=rate, wall_offset_ms=offset_ms)

    def server(self, url: str) -> Server | None:
        """The server there, if its process lives."""
        server = self.servers.get(url)
        return server if server is not None and server.process.is_alive else None

    def pause(self, process: Process) -> None:
        """Stop a process, and let it go on some time later as if nothing had happened."""
        seconds_s = self.chance.choice((3.0, 12.0, 30.0))
        for one in process.together:
            one.pause()
            self.scheduler.after(seconds_s, one.resume)

    def pause_a_container(self) -> None:
        """Stop one of those that run."""
        running = [program for program in self.containers.values() if program.process.is_running]
        if running:
            self.pause(self.chance.choice(running).process)

    def stop_a_machine(self, container: ContainerId) -> None:
        """Let a container and its shares stand still together, and go on later where they were."""
        seconds_s = self.chance.uniform(*_MACHINE_S)
        own = [one.process for one in self.containers.values() if one.id == container]
        own += [share.process for share in self.shares if share.container.id == container]
        for process in own:
            if process.is_running:
                process.pause()
                self.scheduler.after(seconds_s, process.resume)

    def kill_the_leader(self) -> None:
        """Kill the coordinator of the job."""
        state = self.watch.state
        leader = None if state is None else self.server(state.url)
        if leader is not None and self.is_busy:
            leader.process.kill()

    # --- coordinators and containers ---

    def submit(self, *, take_over: bool = False) -> None:
        """An operator runs `grete run` with a configuration."""
        self._submits += 1
        submitted = (f"run-{self._submits}", config(self))
        if self.processors.exist:
            self.processors.gather(submitted)
        else:
            self._coordinate(submitted, take_over=take_over)

    def submit_when_stopped(self) -> None:
        """Run the job again once it has stopped; a wait for nothing is given up."""
        self.process("somebody").spawn(self._wait_and_submit())

    def _wait_and_submit(self) -> Script:
        for _ in range(20):
            yield Sleep(3.0)
            if self.watch.ended is not None or not self.is_busy:
                if self.is_busy:
                    self.submit()
                return

    def _coordinate(self, submitted: tuple[str, dict[str, str]] | None, *, take_over: bool) -> None:
        program = self.coordinate(submitted, take_over=take_over)
        program.process.on_end.append(lambda: self._supervise(program))

    def coordinate(
        self,
        submitted: tuple[str, dict[str, str]] | None,
        *,
        take_over: bool = False,
        processor: ProcessorProgram | None = None,
    ) -> CoordinatorProgram:
        """A new coordinator, a process or the thread of one."""
        number, host = len(self.coordinators), self.chance.choice(self.hosts)
        program = CoordinatorProgram(self, host, number, submitted, take_over, processor)
        if take_over:
            self.conduct.excuse_leaders()
        self.coordinators.append(program)
        return program

    def _supervise(self, ended: CoordinatorProgram) -> None:
        """Start another one in place of one that ended before the job did."""
        self.scheduler.after(self.chance.uniform(0.5, 6.0), lambda: self._succeed(ended))

    def _succeed(self, ended: CoordinatorProgram) -> None:
        submitted = self.unwritten(ended.submitted)
        if self.watch.ended is None or submitted is not None:
            self._coordinate(submitted, take_over=False)

    def unwritten(self, submitted: tuple[str, dict[str, str]] | None) -> tuple[str, dict[str, str]] | None:
        """What was submitted, unless it was written, or another one was submitted since."""
        if submitted is None or submitted[0] != f"run-{self._submits}" or self.watch.run_id == submitted[0]:
            return None
        return submitted

    def is_fenced(self, program: ContainerProgram) -> bool:
        """Whether the stores refuse what this incarnation writes."""
        with self.system.file.reading() as connection:
            seen = seen_epoch(connection, f"container/{JOB}/{program.id}")
        return seen is not None and seen > program.fence_epoch

    # --- time ---

    def step(self) -> bool:
        """The next step, and a look at everything afterwards.

        Raises:
            Violation: a promise is broken.
        """
        went = self.scheduler.step()
        self.watch.check()
        self.ledger.check()
        return went

    def run_until(self, time_s: float) -> None:
        """Let everything happen up to this time."""
        while (due_s := self.scheduler.due_s()) is not None and due_s <= time_s:
            self.step()
        self.scheduler.now_s = max(self.scheduler.now_s, time_s)

    # --- stores ---

    @contextmanager
    def write(self, process: Process) -> Iterator[None]:
        """Around each write of a process to a store: what can go wrong before and after it does.

        Raises:
            Killed, InDoubt, StorageFull, LogError: it went wrong; only of the first two it is unknown how far.
        """
        for action in process.on_write:
            action()
        if self.faults.is_disk_full:
            raise StorageFull("the disk is full")
        if self.faults.rates:
            self._before(process)
        yield
        if self.faults.rates:
            self._after(process)

    def _before(self, process: Process) -> None:
        faults = self.faults
        if faults.strikes("die-before"):
            raise Killed
        if faults.strikes("stall-before"):
            self.stall(process, faults.chance.expovariate(0.1))
        if faults.strikes("in-doubt-lost"):
            raise InDoubt("simulated", "the request was lost")
        if faults.strikes("refused"):
            raise LogError("the store refused")

    def _after(self, process: Process) -> None:
        faults = self.faults
        if faults.strikes("die-after"):
            raise Killed
        if faults.strikes("stall-after"):
            self.stall(process, faults.chance.expovariate(0.1))
        if faults.strikes("in-doubt-written"):
            raise InDoubt("simulated", "the answer was lost")

    def stall(self, process: Process, seconds_s: float) -> None:
        """Pause a process in the middle of a call: the world goes on, and then it does.

        Raises:
            Killed: it was killed meanwhile.
        """
        if self._stalls >= _STALLS_AT_ONCE or not process.is_running:
            return
        self.note(f"{process.name} stalls for {seconds_s:.1f} s")
        process.pause()
        process.is_amid_a_call = True
        self._stalls += 1
        self.run_until(self.scheduler.now_s + seconds_s)
        self._stalls -= 1
        process.is_amid_a_call = False
        process.resume()
        if not process.is_alive:
            raise Killed
