"""A trial in which no leader is harmed while other processes keep every core busy: no other may lead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grete.errors import GreteError
from grete.operations import open_job
from grete.operations.job_handle import JobHandle
from grete_workbench.failover.trial import (
    Damage,
    WrittenEpochs,
    ended,
    job_of,
    recorded_epoch,
    standing_by,
    started,
)

_LOOKS_IN_TTL = 3


@dataclass(frozen=True, slots=True)
class Calm:
    """The epochs that led, of which the first was meant to; each of the others is a false fail-over."""

    back_end: str
    ttl_s: float
    lasted_s: float
    burning: int
    """Processes that only computed meanwhile."""
    epochs: Sequence[int]
    damage: Damage

    @property
    def is_well(self) -> bool:
        """Whether one leader led all the time, and there was no damage."""
        return len(self.epochs) == 1 and self.damage.is_none

    def document(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "back_end": self.back_end,
            "ttl_s": self.ttl_s,
            "calm_s": round(self.lasted_s, 1),
            "burning": self.burning,
            "false_fail_overs": len(self.epochs) - 1,
            "epochs": list(self.epochs),
            **self.damage.document(),
        }

    def lines(self) -> list[str]:
        """For people."""
        said = f"{self.lasted_s:.0f} s beside {self.burning} busy processes, a lease of {self.ttl_s:g} s"
        return [f"{self.back_end}: {said}", f"  false fail-overs     {len(self.epochs) - 1}"]


def run_calm(
    back_end: str,
    settings: Mapping[str, str],
    home: Path,
    *,
    lasts_s: float,
    ttl_s: float,
    rate: int,
    burning: int,
) -> Calm:
    """Leave a leader and one that stands by alone for so long, with `rate` records a second coming in.

    Raises:
        AssertionError: the job did not start, or did not process everything in the end.
    """
    with job_of(settings, home, ttl_s) as job:
        started(job)
        with open_job(job.job) as handle:
            written = WrittenEpochs(handle)
            standing_by(job, handle)
            epochs = {recorded_epoch(handle)}
            began_s = time.monotonic()
            with _burning(burning), job.fed(rate):
                while time.monotonic() - began_s < lasts_s:
                    time.sleep(min(ttl_s / _LOOKS_IN_TTL, lasts_s))
                    written.look()
                    epochs |= _leading(handle)
            lasted_s = time.monotonic() - began_s
            damage = ended(job, handle, written, max(epochs))
            epochs.add(recorded_epoch(handle))
    return Calm(back_end, ttl_s, lasted_s, burning, sorted(epochs), damage)


def _leading(handle: JobHandle) -> set[int]:
    """The epoch that leads, as far as the service answers."""
    try:
        found = handle.election.leading_epoch()
    except GreteError as error:
        if not error.may_pass:
            raise
        return set()
    return set() if found is None else {found}


@contextmanager
def _burning(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cores() -> int:
    """As many processes as keep all of them busy."""
    return os.cpu_count() or 1
