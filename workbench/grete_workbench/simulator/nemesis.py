"""The nemesis, which breaks processes and machines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grete.model.fence import job_scope
from grete_workbench.simulator.conduct import JOB
from grete_workbench.simulator.faults import MEMBER_KINDS, PROCESS_KINDS, SHARE_KINDS
from grete_workbench.simulator.scheduler import Script, Sleep

if TYPE_CHECKING:
    from grete_workbench.simulator.share import ShareProgram
    from grete_workbench.simulator.world import World


class Nemesis:
    """Breaks processes and machines."""

    def __init__(self, world: World) -> None:
        self._world = world

    def script(self) -> Script:
        """One fault after the other, as long as the seed has some."""
        return self._strike(PROCESS_KINDS, (2.0, 12.0))

    def shares(self) -> Script:
        """As `script`, at shares alone."""
        return self._strike(SHARE_KINDS, (0.5, self._world.chance.choice((3.0, 10.0))))

    def members(self) -> Script:
        """As `script`, at the stream processors of the job."""
        return self._strike(MEMBER_KINDS, (1.0, self._world.chance.choice((6.0, 15.0))))

    def _strike(self, kinds: tuple[str, ...], pauses_s: tuple[float, float]) -> Script:
        world = self._world
        while world.is_busy:
            yield Sleep(world.chance.uniform(*pauses_s))
            kind = world.faults.among(kinds)
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

    def _a_share(self) -> ShareProgram | None:
        alive = [share for share in self._world.shares if share.process.is_alive]
        return self._world.chance.choice(alive) if alive else None

    def _kill_share(self) -> None:
        share = self._a_share()
        if share is not None:
            share.process.kill()

    def _pause_share(self) -> None:
        share = self._a_share()
        if share is not None:
            self._world.pause(share.process)

    def _lose_share(self) -> None:
        """Spark takes a worker for lost, which goes on, now or later: best one that has something to commit."""
        alive = [share for share in self._world.shares if share.process.is_alive]
        amid = [share for share in alive if share.is_amid_a_transaction]
        if alive:
            share = self._world.chance.choice(amid or alive)
            share.is_lost = True
            if self._world.chance.random() < 0.6:
                self._world.pause(share.process)

    def _cut_share(self) -> None:
        """Its connection carries nothing any more, which it notices some time later."""
        share = self._a_share()
        if share is not None:
            share.line.cut(self._world.chance.uniform(0.0, 8.0))

    def _join(self) -> None:
        self._world.processors.join_another()

    def _leave(self) -> None:
        self._world.processors.leave()

    def _second_of_its_id(self) -> None:
        """A processor stands still, and is started a second time."""
        living = [one for one in self._world.processors.living() if one.process.is_running]
        if living:
            first = self._world.chance.choice(living)
            self._world.pause(first.process)
            self._world.processors.join(first.id, self._world.unwritten(first.submitted))

    def _cells_silent(self) -> None:
        self._world.cells_are_silent = True
        self._world.scheduler.after(self._world.chance.uniform(1.0, 15.0), self._cells_again)

    def _cells_again(self) -> None:
        self._world.cells_are_silent = False

    def _leader_gone_amid_a_hand_over(self) -> None:
        """Processors come or go, and soon the leader dies or stands still."""
        chance, world = self._world.chance, self._world
        chance.choice((world.processors.join_another, world.processors.leave))()
        gone = chance.choice((world.kill_the_leader, self._pause_coordinator, self._leader_lost))
        world.scheduler.after(chance.uniform(0.0, 8.0), lambda: gone() if world.is_busy else None)

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
        """Its leadership is ended, or deleted by hand, which takes its epoch along."""
        terms, scope = self._world.leaderships.terms, job_scope(JOB)
        if scope not in terms:
            return
        if self._world.chance.random() < 0.5:
            terms[scope] = replace(terms[scope], holder=None)
        else:
            del terms[scope]
        self._world.conduct.excuse_leaders()
