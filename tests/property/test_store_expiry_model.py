"""Any order of puts, time, deaths, lost disks, standby copies, tidying and rewinds: a store is a dict with times.

Every way to read it, and what any other reader makes of the changelog, is compared with the dict after each step.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.shelf import Shelf
from tests.unit.tasks.test_store_expiry import CONFIG, SSP, TASK, TTL, looked, tidied

from grete.config.settings import Settings
from grete.errors import JobError
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import startpoint_entry, startpoint_key
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.tasks.stores.rewind import Changelog
from grete.testing.job import JobUnderTest

TTL_MS = int(CONFIG[TTL])
Entries = dict[str, tuple[int, int]]
"""Value and time of the last put."""
KEYS = st.sampled_from("abcd")
LAG = "stores.shelf.changelog.min.compaction.lag.ms"


class ExpiringStoreMachine(RuleBasedStateMachine):
    """A job with one task and a store, beside the dict."""

    job: JobUnderTest | None = None

    @initialize(lag_ms=st.sampled_from(["0", "40000", "3600000"]))
    def begin(self, lag_ms: str) -> None:
        replicas = {"job.standbytasks.replication.factor": "2"}
        self.job = JobUnderTest(Shelf, {**CONFIG, **replicas, LAG: lag_ms}).start()
        self.entries: Entries = {}
        self.before: list[tuple[int, Entries]] = []

    @property
    def running(self) -> JobUnderTest:
        assert self.job is not None
        return self.job

    @property
    def changelog(self) -> Changelog:
        job = self.running._settings.job.id
        stream = Settings.of(CONFIG).store("shelf").changelog_stream(job)
        return Changelog(self.running._system, stream, 0, is_expiring=True)

    def arrive(self, key: str, value: int | None) -> None:
        self.running.send("local.in", value, key=key)

    def done(self, key: str, value: int | None) -> None:
        self.running.run()
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = (value, self.running.clock.wall_ms())

    @rule(key=KEYS, value=st.none() | st.integers(0, 9))
    def change(self, key: str, value: int | None) -> None:
        self.before.append((self.changelog.end, dict(self.entries)))
        self.arrive(key, value)
        self.done(key, value)

    @rule(key=KEYS, value=st.integers(10, 19), seconds_s=st.integers(1, 70), restarts=st.booleans())
    def change_late(self, key: str, value: int, seconds_s: int, restarts: bool) -> None:
        """A batch is not committed and processed again, by this process or another: that counts."""
        self.arrive(key, value)
        self.running.run_batch(commit=False)
        self.running.advance(seconds_s)
        if restarts:
            self.running.restart()
        self.done(key, value)

    @rule(seconds_s=st.integers(1, 70))
    def pass_time(self, seconds_s: int) -> None:
        self.running.advance(seconds_s)

    @rule(lose_stores=st.booleans())
    def restart(self, lose_stores: bool) -> None:
        self.running.restart(lose_stores=lose_stores)

    @rule()
    def follow(self) -> None:
        self.running.follow()

    @rule()
    def tidy(self) -> None:
        tidied(self.running)
        self.running.advance(31)  # a round is due

    @precondition(lambda self: self.job is not None and self.before)
    @rule(choice=st.integers(0, 99), lose_stores=st.booleans())
    def rewind(self, choice: int, lose_stores: bool) -> None:
        position, entries = self.before[choice % len(self.before)]
        try:
            self.changelog.check_whole(position)
        except JobError:
            return  # compaction has gone over it
        self.running.advance(1)
        now_ms, stream = self.running.clock.wall_ms(), self.running.coordinator_stream()
        offset = self.running._system.offsets("in")[0].upcoming
        point = Startpoint(StartpointKind.SPECIFIC, now_ms, offset=offset)
        state = StateRequest(StateChoice.RESTORE, now_ms, {"shelf": position})
        stream.append([startpoint_entry(startpoint_key(SSP, TASK), point), state_entry(stream, TASK, state)])
        self.running.restart(lose_stores=lose_stores)
        self.entries = dict(entries)

    @invariant()
    def what_lives_is_there_and_nothing_else(self) -> None:
        if self.job is not None:
            now_ms = self.job.clock.wall_ms()
            living = {k: value for k, (value, put_ms) in self.entries.items() if now_ms - put_ms <= TTL_MS}
            assert looked(self.job) == living

    def teardown(self) -> None:
        if self.job is not None:
            self.job.close()


TestExpiringStore = ExpiringStoreMachine.TestCase
TestExpiringStore.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
