"""Rules of a DataFrame pipeline's outputs that are no streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.config.key_tables import outputs as keys
from grete.config.key_tables.job import APP_CLASS
from grete.config.settings import Settings
from grete.config.settings.outputs import DELTA, JDBC
from grete.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ICEBERG = "iceberg"


def output_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Each output without what its format needs, with the way out."""
    settings = Settings.of(config)
    for name, output in settings.outputs.items():
        if not _NAME.fullmatch(name):
            yield f"outputs.{name}: an output's name has only A-Z a-z 0-9 _ -; rename it"
        if not settings.job.is_pipeline:
            yield f"outputs.{name}: only a DataFrame pipeline ({APP_CLASS.name}) has outputs that are no streams"
        try:
            kind = output.format
        except ConfigError as error:
            yield str(error)
            continue
        if kind == _ICEBERG:
            yield (
                f"outputs.{name}.format=iceberg: Iceberg's runtime for Spark 4.1, its newest, does not run on 4.2; "
                f"use {DELTA}, or parquet"
            )
        needed = (keys.OUTPUT_URL, keys.OUTPUT_TABLE) if kind == JDBC else (keys.OUTPUT_PATH,)
        for key in needed:
            if not config.get(key.named(name)):
                yield f"{key.named(name)} is not set: {key.doc}"
