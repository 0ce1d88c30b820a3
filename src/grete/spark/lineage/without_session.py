"""The lineages of a container, for a process without a session of Spark's."""

from __future__ import annotations

from pathlib import Path

from grete.config.key_tables.job import LINEAGE_DIR
from grete.config.settings import Settings
from grete.spark.lineage.files import LineageDirectory, Lineages
from grete.spark.lineage.location import OnAsking, reach_address


def open_lineages(place: Path | str, settings: Settings, on_asking: OnAsking) -> Lineages:
    """Those in a place, as `JobSettings.container_lineages` tells it; close them.

    Raises:
        ConfigError, FilesUnreachable, JobError, MissingExtra: see `reach_address`.
    """
    if isinstance(place, Path):
        return LineageDirectory(place)
    address = reach_address(place, LINEAGE_DIR.name, settings, on_asking)
    from grete.spark.lineage.on_hadoop import HadoopLineages  # needs pyspark

    return HadoopLineages(address)
