"""The configuration of a second version of a job, which runs beside the first."""

from __future__ import annotations

from grete.config.key_tables.job import APP_NAME, JOB_NAME, SUCCEEDED_BY
from grete.config.key_tables.streams import STORE_CHANGELOG
from grete.config.key_tables.task import CONSUMER_GROUP, DEAD_LETTERS, INPUTS_ENDS, OUTPUTS_SUFFIX
from grete.config.settings import Settings
from grete.errors import ConfigError


def clone_config(settings: Settings, name: str, *, start: str) -> Settings:
    """The configuration of a clone, which reads all inputs from `start`, "oldest" or "upcoming".

    Raises:
        ConfigError: a DataFrame pipeline, whose outputs cannot be told apart.
    """
    if settings.job.is_pipeline:
        raise ConfigError(
            "a DataFrame pipeline is not cloned: give its copy another name, and outputs of its own"
        )
    of_the_other = (SUCCEEDED_BY.name, INPUTS_ENDS.name, CONSUMER_GROUP.name)
    made = {key: value for key, value in settings.raw.items() if key not in of_the_other}
    made[JOB_NAME.name] = name
    if APP_NAME.name in made:
        made[APP_NAME.name] = name
    made[OUTPUTS_SUFFIX.name] = f"{made.get(OUTPUTS_SUFFIX.name, '')}-{name}"
    own = [DEAD_LETTERS.name, *(STORE_CHANGELOG.named(store) for store in settings.store_names)]
    made |= {key: f"{made[key]}-{name}" for key in own if made.get(key)}
    begins = {settings.stream(one).key("samza.offset.default"): start for one in settings.task.all_inputs}
    return Settings.of({**made, **begins})
