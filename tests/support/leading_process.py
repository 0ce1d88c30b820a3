"""A process that leads on ZooKeeper and acts for as long as it may, to be paused and killed.

    python -m tests.support.leading_process SERVERS SCOPE TTL_S FILE

It writes a line for each act: its epoch, and the machine's monotonic clock after the right to act was checked.
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from pathlib import Path

from grete.clock import SystemClock
from grete.coordination.base import Leadership
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.settings import ZooKeeperSettings

_ACT_S = 0.005


def main(servers: str, scope: str, ttl_s: float, path: Path) -> None:
    """Lead, renew and act until the leadership is lost."""
    clock, never = SystemClock(), threading.Event()
    with (
        closing(ZooKeeperCoordination(ZooKeeperSettings(servers, ttl_s), clock, ttl_s=ttl_s)) as coordination,
        path.open("a", buffering=1) as acts,
    ):
        leading: Leadership | None = coordination.campaign(scope)
        renew_at_s = 0.0
        while leading is not None:
            now_s = clock.monotonic_s()
            if now_s < leading.valid_until_s:
                acts.write(f"{leading.epoch} {now_s}\n")
            if now_s >= renew_at_s:
                renew_at_s = now_s + ttl_s / 3
                leading = coordination.renew(leading)
            clock.wait(never, _ACT_S)
        acts.write("lost\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
