"""A process that leads when it can, and writes into a log as long as it may: `contender.py JSON`.

It does what a coordinator does with its leadership: campaigns above what the log has seen, claims its epoch there,
renews every third of a TTL, writes under its epoch, and begins again when it has lost. Its wall clock may be wrong.
After SIGUSR1 it stops (SIGSTOP) where that is worst: it has made sure that it may write, and has not written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.base import Coordination, Leadership
from grete.coordination.factory import open_coordination
from grete.coordination.lead import lead
from grete.errors import Fenced, GreteError, HeldByOther
from grete.keyed_log.base import Entry, KeyedLog
from grete.keyed_log.coordinator_log import open_coordinator_log
from grete.model.fence import Fence

SCOPE = "job/contended-1"
LOG = "effects"
REFUSED = "refused:"


class WrongClock(SystemClock):
    """Shows another time of day than it is."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_ms = round(ahead_s * 1000)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def open_log(home: Path) -> KeyedLog:
    """The log that all contenders write into, apart from the service that elects them."""
    return open_coordinator_log(Settings.of({}), LOG, home / "effects", SystemClock())


class Contender:
    """One process of several. `asked` has the settings of its election, home, TTL, and how wrong its clock is."""

    def __init__(self, asked: Mapping[str, Any], log: KeyedLog) -> None:
        self._settings = Settings.of(asked["settings"])
        self._home = Path(asked["home"])
        self._ttl_s = float(asked["ttl_s"])
        self._clock = WrongClock(float(asked["ahead_s"]))
        self._log = log
        self._read, self._floor = -1, 0
        self._stops = False
        signal.signal(signal.SIGUSR1, lambda *_: self._stop_soon())

    def _stop_soon(self) -> None:
        self._stops = True

    def run(self) -> None:
        """Until it is killed."""
        while True:
            try:
                with closing(self._opened()) as coordination:
                    self._lead(coordination, self._won(coordination))
            except Fenced as error:  # this incarnation is over, and another one begins
                print(REFUSED, error, file=sys.stderr, flush=True)
            except GreteError as error:  # as a supervisor starts a coordinator again
                print("ended:", error, file=sys.stderr, flush=True)
            time.sleep(self._ttl_s / 20)

    def _opened(self) -> Coordination:
        return open_coordination(self._settings, self._home, self._clock, ttl_s=self._ttl_s)

    def _won(self, coordination: Coordination) -> Leadership:
        while True:
            try:
                return lead(
                    coordination, self._log, SCOPE, self._clock, epoch_floor=self._seen(), patiently=False
                )
            except HeldByOther:
                time.sleep(self._ttl_s / 20)

    def _seen(self) -> int:
        for record in self._log.read(self._read):
            self._read = record.offset
            self._floor = max(self._floor, record.epoch or 0)
        return self._floor

    def _lead(self, coordination: Coordination, first: Leadership) -> None:
        fence = Fence(SCOPE, first.epoch)
        effect = json.dumps({"pid": os.getpid(), "incarnation": first.incarnation}).encode()
        leadership: Leadership | None = first
        self._stops = False  # an earlier term may have been over before it stopped
        renew_s = time.monotonic() + self._ttl_s / 3
        while leadership is not None:
            if time.monotonic() >= renew_s:
                renew_s = time.monotonic() + self._ttl_s / 3
                leadership = coordination.renew(leadership)
            elif time.monotonic() < leadership.valid_until_s:
                if self._stops:
                    self._stops = False
                    os.kill(os.getpid(), signal.SIGSTOP)
                self._log.append([Entry(b"effect", effect)], fence=fence)
            time.sleep(self._ttl_s / 50)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    with closing(open_log(Path(given["home"]))) as opened:
        Contender(given, opened).run()
