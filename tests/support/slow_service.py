"""What a leader may do while the service that elects answers slowly."""

from __future__ import annotations

from collections.abc import Callable

from grete.clock import SystemClock
from grete.coordination.base import Coordination


def check_that_a_grant_counts_from_its_request(
    leader: Coordination, scope: str, slow_down: Callable[[], None], *, ttl_s: float, at_least_s: float
) -> None:
    """A renewal that took at least so long ends as early as one that was answered when it was asked for."""
    clock = SystemClock()
    granted = leader.campaign(scope)
    slow_down()
    began_s = clock.monotonic_s()
    renewed = leader.renew(granted)
    took_s = clock.monotonic_s() - began_s
    assert renewed is not None
    assert took_s >= at_least_s
    assert renewed.valid_until_s - ttl_s * 2 / 3 < began_s + took_s / 2
