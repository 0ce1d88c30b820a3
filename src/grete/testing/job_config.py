"""A job's configuration in a test: as `grete run` would write it, without paths that lead out of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.config.derived import canonical_keys
from grete.config.key_tables.job import APP_CLASS, STATE_DIR, TASK_CLASS
from grete.config.key_tables.streams import SYSTEM_FACTORY, SYSTEM_PATH
from grete.config.key_tables.task import CHECKPOINT_PATH
from grete.config.load import load
from grete.config.rewriters import apply_rewriters
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.config.time_zone import with_time_zone
from grete.testing.applications import Application, Pipeline, is_pipeline, name_of


def prepared(
    application: Application | Pipeline | None, config: Mapping[str, str], files: Sequence[str | Path]
) -> Settings:
    """Load, rewrite and validate.

    Raises:
        ConfigError: as `grete run` would refuse it.
    """
    loaded = {"job.name": "test", **load([str(file) for file in files], config)}
    if application is not None:
        key = TASK_CLASS.name if not is_pipeline(application) else APP_CLASS.name
        loaded[key] = name_of(application)
    rewritten = apply_rewriters(loaded)
    validate(rewritten)
    kept = canonical_keys(rewritten)
    kept.pop(STATE_DIR.name, None)
    for system in Settings.of(kept).system_names:
        kept.pop(SYSTEM_PATH.named(system), None)
        kept[SYSTEM_FACTORY.named(system)] = EMBEDDED_SYSTEM
    return with_time_zone(Settings.of(kept), None)


def with_checkpoints_in(directory: Path, settings: Settings) -> Settings:
    """The settings with their folder of checkpoint files, if they name one, in `directory`, where it is created."""
    if settings.task.checkpoint_path is None:
        return settings
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    return Settings.of({**settings.raw, CHECKPOINT_PATH.name: str(checkpoints)})
