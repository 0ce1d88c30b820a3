"""One trial: a job under load whose leading coordinator is killed again and again while another one stands by."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from grete.environment import HOME
from grete.errors import GreteError
from grete.operations import open_job
from grete.operations.job_handle import JobHandle
from grete.testing.chaos.own_job import OwnJob
from grete.testing.waiting import eventually, patient
from grete_workbench.failover.processors import OwnProcessors

_LOOK_EVERY_S = 0.005
_GIVE_UP_TTLS = 10
_LOOKS_AFTER_S = 0.5
_QUIET_S = 120.0
_MOMENTS = {
    "elected_ttls": "another is elected",
    "leading_ttls": "another leads",
    "processing_ttls": "all tasks process",
}


class NoSuccessor(GreteError):
    """No other coordinator led after the one before was killed. The message ends with the coordinators' log."""


@dataclass(frozen=True, slots=True)
class FailOver:
    """One kill. Seconds from it until another process is elected, and until the stream says that it leads.

    Of processors, which process as well, also until every task has committed again.
    """

    elected_s: float
    leading_s: float
    epoch: int
    processing_s: float | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """Records lost or doubled, and writes of an epoch that came after one of a higher epoch; all are to be 0."""

    records: int
    lost: int
    doubled: int
    disordered: int
    """Keys whose records were processed in another order."""
    stale: int
    load: float
    """Of the machine at the end."""

    @property
    def is_none(self) -> bool:
        """Whether nothing was lost, doubled or written by a leader that was succeeded."""
        return self.lost == self.doubled == self.disordered == self.stale == 0

    def document(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "records": self.records,
            "lost": self.lost,
            "doubled": self.doubled,
            "keys_out_of_order": self.disordered,
            "stale_effects": self.stale,
            "load_at_end": self.load,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial has shown."""

    back_end: str
    of: str
    """The processes that were killed: coordinators or processors."""
    ttl_s: float
    fail_overs: Sequence[FailOver]
    damage: Damage

    @property
    def is_well(self) -> bool:
        """Whether there was no damage."""
        return self.damage.is_none

    def document(self) -> dict[str, Any]:
        """As JSON says it, with the percentiles in units of the TTL."""
        processing = [each.processing_s for each in self.fail_overs if each.processing_s is not None]
        return {
            "back_end": self.back_end,
            "of": self.of,
            "ttl_s": self.ttl_s,
            "kills": len(self.fail_overs),
            "elected_ttls": self._percentiles([each.elected_s for each in self.fail_overs]),
            "leading_ttls": self._percentiles([each.leading_s for each in self.fail_overs]),
            **({"processing_ttls": self._percentiles(processing)} if processing else {}),
            **self.damage.document(),
            "fail_overs": [asdict(each) for each in self.fail_overs],
        }

    def lines(self) -> list[str]:
        """For people."""
        said = self.document()
        found = [f"{self.back_end}: {said['kills']} kills of {self.of}, a lease of {self.ttl_s:g} s"]
        for name, what in _MOMENTS.items():
            if name in said:
                found.append(f"  {what:<20} p50 {said[name]['p50']:.2f} TTL, p99 {said[name]['p99']:.2f} TTL")
        return found

    def _percentiles(self, seconds: Sequence[float]) -> dict[str, float]:
        """Of few kills the 99th is the longest."""
        found = sorted(seconds)
        last = min(len(found) - 1, round(0.99 * len(found)))
        p50, p99 = statistics.median(found), found[last]
        return {"p50": round(p50 / self.ttl_s, 3), "p99": round(p99 / self.ttl_s, 3)}


class WrittenEpochs:
    """The epochs of a job's coordinator stream in the order of its records; tailed, so that compaction hides none."""

    def __init__(self, handle: JobHandle) -> None:
        self._log = handle.coordinator_log
        self._after = -1
        self._highest = 0
        self.stale = 0
        """Records under an epoch below one that was written before."""

    def look(self) -> None:
        """Take in what was written since."""
        for record in self._log.read(self._after):
            self._after = record.offset
            if record.epoch is not None:
                self.stale += record.epoch < self._highest
                self._highest = max(self._highest, record.epoch)


@contextmanager
def _home(directory: Path) -> Iterator[None]:
    before = os.environ.get(HOME)
    os.environ[HOME] = str(directory)
    try:
        yield
    finally:
        os.environ.pop(HOME) if before is None else os.environ.update({HOME: before})


@contextmanager
def job_of(
    settings: Mapping[str, str], home: Path, ttl_s: float, kind: type[OwnJob] = OwnJob
) -> Iterator[OwnJob]:
    """The job of a trial, which nothing has started yet."""
    lease = {"job.coordinator.lease.ttl.ms": str(round(ttl_s * 1000))}
    name = f"failover-{uuid.uuid4().hex[:8]}"  # a server may have seen others
    few = {"job.container.count": "1", "job.standbytasks.replication.factor": "1"}
    job = kind(home, name=name, spark=False, settings={**few, **settings, **lease})
    with _home(home):
        try:
            yield job
        finally:
            job.close()


def started(job: OwnJob) -> subprocess.Popen[bytes]:
    """Its leader, once the job processes."""
    job.send(100)
    leader = job.start()
    assert job.wait_until_counted(100, _QUIET_S), "the job did not begin to process"
    return leader


def ended(job: OwnJob, handle: JobHandle, written: WrittenEpochs, epoch: int) -> Damage:
    """Stop the job, whose last leader has this epoch, when all is processed; what was found then."""
    assert job.wait_until_counted(job.sent, _QUIET_S), "not everything was processed"
    eventually(lambda: recorded_epoch(handle) >= epoch, "the last leader is recorded")
    code = job.stop()
    written.look()
    assert code == 0, f"the job ended with code {code}:\n{_end_of_log(job.home)}"
    found = list(job.found())
    return Damage(
        job.sent,
        sum(len(each.lost) for each in found),
        sum(each.doubled for each in found),
        sum(not each.in_order for each in found),
        written.stale,
        round(os.getloadavg()[0], 1),
    )


def run_trial(
    back_end: str,
    settings: Mapping[str, str],
    home: Path,
    *,
    kills: int,
    ttl_s: float,
    rate: int,
    seed: int,
    processors: bool = False,
) -> Outcome:
    """Kill the leading coordinator `kills` times with `rate` records a second coming in, then drain and count.

    With `processors` it is the leading stream processor.

    Raises:
        NoSuccessor: no other process led within ten TTLs.
        AssertionError: the job did not start, or did not process everything in the end.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    with job_of(settings, home, ttl_s, OwnProcessors if processors else OwnJob) as job:
        return _trial(job, back_end, kills, ttl_s, rate, chance)


def _trial(job: OwnJob, back_end: str, kills: int, ttl_s: float, rate: int, chance: random.Random) -> Outcome:
    leader = started(job)
    with open_job(job.job) as handle:
        written = WrittenEpochs(handle)
        fail_overs: list[FailOver] = []
        with job.fed(rate):
            for _ in range(kills):
                successor = standing_by(job, handle)
                time.sleep(chance.random() * ttl_s / 3)  # to kill at any moment between two renewals
                found = _fail_over(handle, leader, successor, ttl_s, job.home)
                if isinstance(job, OwnProcessors):
                    took_s = found.leading_s + job.seconds_until_processing(handle)
                    found = replace(found, processing_s=round(took_s, 3))
                fail_overs.append(found)
                written.look()
                leader = successor
        damage = ended(job, handle, written, fail_overs[-1].epoch)
    of = "processors" if isinstance(job, OwnProcessors) else "coordinators"
    return Outcome(back_end, of, ttl_s, fail_overs, damage)


def standing_by(job: OwnJob, handle: JobHandle) -> subprocess.Popen[bytes]:
    """Another coordinator, once it is a member and has looked at the leader since."""
    successor = job.stand_by()
    eventually(
        lambda: successor.pid in {each.pid for each in handle.election.standbys()}, "a process that stands by"
    )
    time.sleep(_LOOKS_AFTER_S)
    if isinstance(job, OwnProcessors):
        job.wait_until_shared(handle)
    return successor


def _fail_over(
    handle: JobHandle,
    leader: subprocess.Popen[bytes],
    successor: subprocess.Popen[bytes],
    ttl_s: float,
    home: Path,
) -> FailOver:
    epoch = recorded_epoch(handle)
    leader.kill()
    began_s = time.monotonic()
    leader.wait()
    until_s = began_s + patient(_GIVE_UP_TTLS * ttl_s)
    elected_s = 0.0
    while True:
        now_s = time.monotonic()
        if not elected_s and _is_held_by(handle, successor.pid):
            elected_s = now_s - began_s
        leading = recorded_epoch(handle)
        if leading > epoch:
            return FailOver(round(elected_s or now_s - began_s, 3), round(now_s - began_s, 3), leading)
        if now_s > until_s or successor.poll() is not None:
            raise NoSuccessor(
                f"process {successor.pid} did not succeed process {leader.pid}:\n{_end_of_log(home)}"
            )
        time.sleep(_LOOK_EVERY_S)


def _end_of_log(home: Path) -> str:
    return (home / "coordinator.log").read_text(errors="replace")[-3_000:]


def _is_held_by(handle: JobHandle, pid: int) -> bool:
    try:
        holder = handle.election.holder()
    except GreteError as error:
        if not error.may_pass:
            raise
        return False
    return holder is not None and holder.pid == pid


def recorded_epoch(handle: JobHandle) -> int:
    """The epoch of the leader that has recorded the job's state last."""
    state = handle.state()
    return 0 if state is None else state.epoch
