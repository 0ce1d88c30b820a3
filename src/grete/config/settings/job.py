"""Settings of the job as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from grete.config.key_tables import job as keys
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.model.ids import JobId


def job_id(raw: Mapping[str, str]) -> JobId:
    """The job of a configuration that need not be valid: a name that is missing is empty."""
    return JobId(raw.get(keys.JOB_NAME.name, ""), raw.get(keys.JOB_ID.name, keys.JOB_ID.default or ""))


class JobSettings(Section):
    """`job.*`: identity, application, containers and their launcher."""

    name = Setting(keys.JOB_NAME)
    application_class = OptionalSetting(keys.APP_CLASS)
    task_class = OptionalSetting(keys.TASK_CLASS)

    @cached_property
    def id(self) -> JobId:
        """Name and id.

        Raises:
            ConfigError: without `job.name`.
        """
        return JobId(self.name, self.number)

    number = Setting(keys.JOB_ID)
    """`job.id`, which tells apart jobs of one name."""
