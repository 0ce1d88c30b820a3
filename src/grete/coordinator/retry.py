"""Whether and when a container that failed is started again: pure, as all decisions.

The rule of Samza's ContainerProcessManager: failures are counted, and the count starts over only when a container ran
for the retry window before it failed. The pauses that we make do not count as running. Beyond that, what cannot
succeed is not tried again, a message that could not be processed is tried once more, and a container that fails
without having committed anything waits, longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.events import ContainerExited
from grete.coordinator.state import ContainerState, Failures
from grete.model.ending import ExitCode

_FOR_GOOD = (ExitCode.CONFIG, ExitCode.OFFSETS_GONE, ExitCode.UNUSABLE)
"""Nothing would differ if it was tried again: an operator has to act."""
_FIRST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class RetryVerdict:
    """The consequence of a failure; `failures.pause_s` is how long to wait, unless it is given up."""

    failures: Failures
    is_given_up: bool


def judge(
    container: ContainerState, event: ContainerExited, policy: RetryPolicy, now_s: float
) -> RetryVerdict:
    """Count the failure that the container ended with."""
    before = container.failures
    if before.count and now_s - (before.at_s + before.pause_s) >= policy.window_s:
        before = Failures()
    fruitless = 0 if container.committed else before.fruitless + 1
    failures = Failures(
        count=before.count + 1,
        at_s=now_s,
        pause_s=min(policy.longest_pause_s, _pause_s(fruitless, event.exit_code)),
        fruitless=fruitless,
        reason=event.reason,
        place=event.place,
    )
    is_repeated = event.place != "" and event.place == before.place
    is_given_up = event.exit_code in _FOR_GOOD or (
        policy.count >= 0 and (failures.count > policy.count or is_repeated)
    )
    return RetryVerdict(failures, is_given_up)


def _pause_s(fruitless: int, exit_code: int) -> float:
    """None for a container that has worked since it was started, or ended in order: no reason to wait."""
    if fruitless == 0 or exit_code == ExitCode.STOPPED:
        return 0.0
    return _FIRST_PAUSE_S * 2.0 ** min(fruitless - 1, 10)
