"""The set-once part of the configuration that the job runs with, as grete's own records in the coordinator stream.

Any program may write a configuration, also while the job is stopped. State belongs to the one that a leader has made
a job model of, so changes are measured by that: the leader notes it with the model, and it is compared at every
submit, every start and every change. A stream that was written before there were such records counts as being in
force itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.rules.changes import Change, refusal, set_once_changes, set_once_part
from grete.config.settings import Settings
from grete.metadata.assignments import Record
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import JobId

IN_FORCE = "grete-config-in-force"
FORCED = "grete-config-forced"
"""A change that an operator insists on: accepted at the next start, and forgotten then."""


class ConfigInForce:
    """The configuration in force according to the stream, and which others it refuses."""

    def __init__(self, stream: CoordinatorStream) -> None:
        self._stream = stream

    def read(self) -> dict[str, str]:
        """The set-once part of it; empty for a job that was never submitted."""
        return self._recorded(IN_FORCE) or set_once_part(self._stream.config())

    def owner(self, job: JobId) -> JobId:
        """Which job the stream is of; `job` when it does not say."""
        written = Settings.of(self.read()).job.written_id
        return written if written.name else job

    def changed_by(self, config: Mapping[str, str]) -> list[Change]:
        """The set-once keys of a stateful job that the configuration would change, without what was forced."""
        forced = self._stream.messages(FORCED)
        return [
            change
            for change in set_once_changes(self.read(), set_once_part(config))
            if change.key not in forced or (forced[change.key].values or {}).get("value") != change.new
        ]

    def refusals(self, config: Mapping[str, str]) -> list[str]:
        """Why the job may not run with the configuration, each with the way out (S1-23)."""
        return [refusal(change) for change in self.changed_by(config)]

    def force(self, config: Mapping[str, str]) -> None:
        """Let the job run with the configuration all the same. Nothing is written where nothing is refused."""
        changes = self.changed_by(config)
        if changes:
            self._stream.append(
                self._stream.entry(FORCED, one.key, {} if one.new is None else {"value": one.new})
                for one in changes
            )

    def records(self, config: Mapping[str, str]) -> list[Record]:
        """The records that note the configuration as the one in force, for the append that makes its model."""
        part = set_once_part(config)
        gone = [key for key in self._stream.messages(IN_FORCE) if key not in part]
        return [
            *((IN_FORCE, key, {"value": value}) for key, value in sorted(part.items())),
            *((IN_FORCE, key, None) for key in gone),
            *((FORCED, key, None) for key in self._stream.messages(FORCED)),
        ]

    def _recorded(self, message_type: str) -> dict[str, str]:
        found = self._stream.messages(message_type).items()
        return {key: one.values["value"] for key, one in found if one.values and "value" in one.values}
