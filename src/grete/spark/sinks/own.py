"""An output that the application writes itself."""

from __future__ import annotations

from collections.abc import Sequence

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from grete.api import Batch, DataFramePipeline
from grete.errors import GreteError, JobError
from grete.failpoints import failpoint
from grete.spark.sinks.base import compute_only
from grete.systems.commit_group import SegmentWrite


class OwnSink:
    """Calls `DataFramePipeline.write_batch`."""

    def __init__(self, pipeline: DataFramePipeline, name: str) -> None:
        self._pipeline = pipeline
        self._name = name

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """Let the application write the rows.

        Raises:
            JobError: what it raised.
        """
        try:
            self._pipeline.write_batch(self._name, rows, batch)
        except (GreteError, Py4JNetworkError):
            raise
        except Exception as error:
            raise JobError(
                f"write_batch of output {self._name!r}, batch {batch.id}, failed: {error}"
            ) from error
        failpoint("sink.committed")
        compute_only(
            rows
        )  # it may have known the batch, and passed over the rows; they are kept (`PipelineBatches`)
        return ()

    def close(self) -> None:
        """Nothing is held."""
