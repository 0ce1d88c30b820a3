"""Settings of autosizing: whether the coordinator decides how many containers or executors a job has, and how."""

from __future__ import annotations

from grete.config.choices import SizingPolicy
from grete.config.key_tables import autosizing as keys
from grete.config.key_tables.task import MAX_RECORDS
from grete.config.settings.section import OptionalSetting, Section, Setting


class AutosizingSettings(Section):
    """`job.autosizing.*`."""

    is_enabled = Setting(keys.AUTOSIZING)
    policy = Setting(keys.AUTOSIZING_POLICY)
    least = Setting(keys.AUTOSIZING_LEAST)
    most = OptionalSetting(keys.AUTOSIZING_MOST)
    """None is as many as tasks."""
    _executors = OptionalSetting(keys.AUTOSIZING_EXECUTORS)
    least_executors = Setting(keys.AUTOSIZING_LEAST_EXECUTORS)
    most_executors = OptionalSetting(keys.AUTOSIZING_MOST_EXECUTORS)
    """None where the job is none that needs it."""
    _batch_records = OptionalSetting(keys.AUTOSIZING_BATCH)
    _configured_records = Setting(MAX_RECORDS)
    _lag_ms = Setting(keys.AUTOSIZING_LAG)
    _percent = Setting(keys.AUTOSIZING_UTILIZATION)
    _up_after_ms = Setting(keys.AUTOSIZING_UP_AFTER)
    _down_after_ms = Setting(keys.AUTOSIZING_DOWN_AFTER)

    @property
    def decides(self) -> bool:
        """Whether the coordinator decides, and no program outside."""
        return self.is_enabled and self.policy is SizingPolicy.LAG

    @property
    def executors(self) -> int | None:
        """What the coordinator has decided for a pipeline; None before, and where it decides nothing."""
        return self._executors if self.decides else None

    @property
    def batch_records(self) -> int:
        """Most records of a pipeline's batch: what was decided, and never more than is configured."""
        decided = self._batch_records if self.decides else None
        return self._configured_records if decided is None else min(decided, self._configured_records)

    @property
    def lag_s(self) -> float:
        """How long a job may need for what it is behind."""
        return self._lag_ms / 1000

    @property
    def utilization(self) -> float:
        """The part of what containers or executors can process that a size leaves them to do."""
        return self._percent / 100

    @property
    def up_after_s(self) -> float:
        """For how long a job has to be too far behind."""
        return self._up_after_ms / 1000

    @property
    def down_after_s(self) -> float:
        """For how long fewer would have to be enough."""
        return self._down_after_ms / 1000
