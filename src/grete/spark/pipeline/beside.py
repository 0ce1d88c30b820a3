"""A pipeline that builds its plan in the application's own environment, through Spark Connect.

Inputs and outputs cross as global temporary views of the container's session, which is all that the two sides share:
the plan that stands behind an output's view is taken into the container's session and runs there as any other does.
The service listens on loopback, asks for a token that goes over the process's pipe, and ends with `build`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from grete.api import DataFramePipeline
from grete.application.beside import ApplicationProcess, CallFailed, interpreter
from grete.application.pipe import Blob
from grete.application.pipeline import PipelineDescription
from grete.config.application_config import ApplicationConfig
from grete.config.log_levels import levels_beside
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.errors import ApplicationError, ApplicationGone, ConfigError, GreteError
from grete.spark import plans
from grete.spark.jvm import jvm_of
from grete.spark.session import connect
from grete.spark.session.worker_python import VARIABLE, application_python

_DATABASE = "global_temp"


class PipelineBeside(DataFramePipeline):
    """The pipeline, as its container sees it. Its process lives from here to the end of `build`."""

    def __init__(self, spark: SparkSession, path: str, settings: Settings) -> None:
        """Starts the process, and asks for what the class says of itself.

        Raises:
            ConfigError, ApplicationError: see `ApplicationProcess.load`; it writes batches itself.
        """
        self._spark = spark
        self._path = path
        self._settings = settings
        self._given = ApplicationConfig(settings.raw)
        self._process: ApplicationProcess | None = None
        described = PipelineDescription(*self._begin())
        if described.has_own_write_batch:
            raise ConfigError(
                f"app.class={path}: write_batch would run in the container, in the framework's environment, which "
                f"job.split.deployment.enabled=true keeps the application out of; name its outputs as streams or by "
                f"outputs.NAME.format, or remove the key"
            )
        self.output_mode = described.output_mode
        self.output = described.output

    def build(self, inputs: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        """Let the process build; the frames are the container's.

        Raises:
            ConfigError, ApplicationError: as in the container; the process ended.
        """
        if self._process is None:
            self._begin()
        _check_interpreter(self._spark, self._settings)
        try:
            with self._views(inputs) as (views, prefix), connect.service(self._spark) as (address, token):
                self._begun.hide(token)  # clients that cannot connect name the address
                request = {"address": address, "inputs": views, "prefix": prefix}
                return {name: self._taken(view) for name, view in self._ask(request).items()}
        finally:
            self.close()

    def close(self) -> None:
        """End the process, if it lives."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _begin(self) -> Any:
        job = self._settings.job
        python = interpreter(job.application_environment)
        folder = job.modules_folder
        process = ApplicationProcess(python, folder, shown=f"app.class={self._path}")
        said = {"path": self._path, "config": dict(self._settings.raw), "levels": levels_beside(folder)}
        try:
            described = process.load(said, self._answer, verb="pipeline")
        except BaseException:
            process.close()
            raise
        self._process = process
        return described

    @property
    def _begun(self) -> ApplicationProcess:
        assert self._process is not None, "it has begun"
        return self._process

    def _ask(self, request: Mapping[str, Any]) -> dict[str, str]:
        try:
            views: dict[str, str] = self._begun.call("build", request, answers=self._answer)[0]
        except CallFailed as failed:
            own = failed.error
            raise own if isinstance(own, GreteError) else ApplicationError(repr(own)) from own
        except ApplicationGone as gone:
            raise ApplicationError(str(gone)) from gone
        return views

    def _answer(self, verb: str, value: Any, blobs: Sequence[bytes]) -> tuple[Any, Sequence[Blob]]:
        return self._given[value], ()

    @contextmanager
    def _views(self, inputs: Mapping[str, DataFrame]) -> Iterator[tuple[dict[str, str], str]]:
        """The views of the inputs, and how those of outputs begin; none of them is there afterwards."""
        prefix = f"grete_{secrets.token_hex(8)}_"
        names = {name: f"{prefix}in_{index}" for index, name in enumerate(inputs)}
        try:
            for name, view in names.items():
                inputs[name].createGlobalTempView(view)
            yield {name: f"{_DATABASE}.{view}" for name, view in names.items()}, prefix
        finally:
            for view in names.values():
                self._spark.catalog.dropGlobalTempView(view)

    def _taken(self, view: str) -> DataFrame:
        """The frame of a view, without the views that its plan has crossed as."""
        plan = plans.analysed(self._spark.table(f"{_DATABASE}.{view}"))
        self._spark.catalog.dropGlobalTempView(view)
        return plans.frame_of(plans.without_views(plan), self._spark)


def _check_interpreter(spark: SparkSession, settings: Settings) -> None:
    jvm: Any = jvm_of(spark)
    wanted = application_python(settings.job, is_local=settings.spark.is_local)[VARIABLE]
    if jvm.java.lang.System.getenv(VARIABLE) != wanted:
        is_deployed = settings.deploy.manager is not Manager.STANDALONE
        way_out = f"leave {VARIABLE} to `grete deploy`" if is_deployed else "set job.launcher=process"
        raise ConfigError(
            "job.split.deployment.enabled=true: Spark's JVM was started by another program than this container, or "
            "told another interpreter, and would evaluate the pipeline's functions in the framework's environment; "
            + way_out
        )
