"""The configuration of a second version of a job, which runs beside the first."""

from __future__ import annotations

import logging

from grete.config.key_tables.job import APP_ID, APP_NAME, JOB_ID, JOB_NAME, PROMOTED_OVER, SUCCEEDED_BY
from grete.config.key_tables.streams import STORE_CHANGELOG
from grete.config.key_tables.task import CONSUMER_GROUP, DEAD_LETTERS, INPUTS_ENDS, OUTPUTS_SUFFIX
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import JobId

_log = logging.getLogger(__name__)


def clone_config(settings: Settings, clone: JobId, *, start: str = "") -> Settings:
    """The configuration of a clone, which reads all inputs from `start`: "oldest", "upcoming", or where it is told.

    Raises:
        ConfigError: the clone has the name of its original; or what is made of it is not valid.
    """
    if clone == settings.job.id:
        raise ConfigError(f"the clone of {clone.shown} needs another name")
    of_the_other = {
        key.name for key in (SUCCEEDED_BY, PROMOTED_OVER, INPUTS_ENDS, CONSUMER_GROUP, APP_NAME, APP_ID)
    }
    made = {key: value for key, value in settings.raw.items() if key not in of_the_other}
    mark = f"-{clone.name}" if clone.id == "1" else f"-{clone}"
    own = [DEAD_LETTERS.name, *(STORE_CHANGELOG.named(store) for store in settings.store_names)]
    made |= {key: made[key] + mark for key in own if made.get(key)}
    made |= {
        JOB_NAME.name: clone.name,
        JOB_ID.name: clone.id,
        OUTPUTS_SUFFIX.name: (settings.task.outputs_suffix or "") + mark,
    }
    if start:
        made |= {settings.stream(one).key("samza.offset.default"): start for one in settings.task.all_inputs}
    validate(made)
    return Settings.of(made)


def with_promotion(submitted: Settings, in_force: Settings) -> Settings:
    """The submitted settings; of a clone that was promoted, with the streams that it writes since.

    The file that made it a clone still says otherwise, and who reads those streams would wait for ever.
    """
    if not in_force.job.promoted_over:
        return submitted
    kept = {PROMOTED_OVER.name: in_force.job.promoted_over, OUTPUTS_SUFFIX.name: in_force.task.outputs_suffix}
    if submitted.task.outputs_suffix != in_force.task.outputs_suffix:
        _log.warning(
            "%s of what was submitted does not count: since it was promoted the job writes the streams of %s",
            OUTPUTS_SUFFIX.name,
            in_force.job.promoted_over,
        )
    raw = {**submitted.raw, **kept}
    return Settings.of({key: value for key, value in raw.items() if value is not None})
