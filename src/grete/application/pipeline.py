"""A pipeline's `build`: in the container, or in a process of the application's own, where it speaks Spark Connect.

Nothing here imports pyspark before it is asked to build: a process of the application's own has that of its
environment.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.api import Action, DataFramePipeline
from grete.application.expectations import PipelineExpectations
from grete.application.load import load_class
from grete.errors import ApplicationError, ConfigError, GreteError

_KEY = "app.class"
_NOT_OWN = (str(Path(__file__).parents[1]), "site-packages", "<")


@dataclass(frozen=True, slots=True)
class RunContext:
    """See `grete.PipelineContext`."""

    spark: Any
    config: Mapping[str, str]
    expectations: PipelineExpectations = field(default_factory=PipelineExpectations)

    def expect(self, frame: Any, condition: str, action: Action = "count", *, name: str = "") -> Any:
        """See PipelineContext."""
        return self.expectations.check(frame, condition, action, name)

    def read_stream(self, format: str, **options: str) -> Any:
        """See PipelineContext."""
        reader = self.spark.readStream.format(format)
        if schema := options.pop("schema", None):
            reader = reader.schema(schema)
        return reader.options(**options).load()


def load_pipeline(path: str) -> DataFramePipeline:
    """A new instance of `app.class`.

    Raises:
        ConfigError: it cannot be imported or is no DataFramePipeline.
    """
    made = load_class(path, _KEY)()
    if not isinstance(made, DataFramePipeline):
        raise ConfigError(f"{_KEY}: {path!r} is not a grete.DataFramePipeline")
    return made


def has_own_write_batch(pipeline: DataFramePipeline) -> bool:
    """Whether it writes outputs by itself."""
    return type(pipeline).write_batch is not DataFramePipeline.write_batch


def build_failed(application: str, error: BaseException) -> ApplicationError:
    """The error of a `build` that raised this. An exit is one as well, and would end a container with its code."""
    if isinstance(error, SystemExit):
        said = f"it has called sys.exit({error.code!r})"
    else:  # Spark's own errors begin with their names, in brackets
        said = text if (text := str(error)).startswith("[") else f"{type(error).__name__}: {text}"
    return ApplicationError(f"build of {application} failed: {said}{_place_of(error)}")


def _place_of(error: BaseException) -> str:
    """The last line of the application's own that was at work; nothing when there is none."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _NOT_OWN)
    ]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


class GivenInputs(dict[str, Any]):
    """What `build` gets: the inputs' frames by `system.stream`."""

    def __missing__(self, name: object) -> Any:
        raise ConfigError(
            f"{_KEY}: build asks for the input {name!r}, which is none; task.inputs has {', '.join(sorted(self))}"
        )


def named_outputs(built: Any, frame: type[Any], application: str, single: str) -> dict[str, Any]:
    """The outputs that `build` returned, by name: streaming DataFrames. `single` is the name of one alone.

    Raises:
        ConfigError: naming what it is instead, and the way out.
    """
    named = f"{_KEY}: {application}.build"
    if isinstance(built, frame):
        if not single:
            raise ConfigError(
                f"{named} returned one DataFrame, and {application}.output does not say where it goes: set it to a "
                f"stream (system.stream), or return a dict from output names to DataFrames"
            )
        built = {single: built}
    if not isinstance(built, Mapping):
        raise ConfigError(
            f"{named} has to return a DataFrame, or a dict from output names to DataFrames; it returned "
            f"{type(built).__name__}"
        )
    if not built:
        raise ConfigError(f"{named} returned an empty dict: there is no output")
    for output, made in built.items():
        _check_output(named, output, made, frame)
    return dict(built)


def _check_output(named: str, output: object, made: Any, frame: type[Any]) -> None:
    if not isinstance(output, str) or not output:
        raise ConfigError(f"{named}: the name of an output is text, {output!r} is not")
    if not isinstance(made, frame):
        raise ConfigError(f"{named}: output {output!r} has to be a DataFrame, it is {type(made).__name__}")
    if not made.isStreaming:
        raise ConfigError(f"{named}: output {output!r} is a DataFrame that reads none of its inputs")


@dataclass(frozen=True, slots=True)
class PipelineDescription:
    """What the framework has to know of a pipeline's class before it builds."""

    output_mode: str
    output: str
    has_own_write_batch: bool


class PipelineThere:
    """The pipeline in the application's process. Views have the names that the container gave them."""

    def __init__(self, path: str, config: Mapping[str, str]) -> None:
        """Loads the class.

        Raises:
            ConfigError: see `load_pipeline`.
        """
        self._path = path
        self._config = config
        self._pipeline = load_pipeline(path)

    def describe(self) -> list[Any]:
        """The fields of its `PipelineDescription`."""
        made = self._pipeline
        return [made.output_mode, made.output, has_own_write_batch(made)]

    def build(self, address: str, inputs: Mapping[str, str], prefix: str) -> dict[str, str]:
        """Let it build, from views of the inputs; the view of each output, whose names begin with the prefix.

        Raises:
            ConfigError: the environment has no Spark Connect; see also `named_outputs`.
            ApplicationError: `build` failed, or Spark refuses what it made.
        """
        try:
            frame, session = _connected(address)
            self._pipeline.context = context = RunContext(session, self._config)
            tables = GivenInputs({name: session.table(view) for name, view in inputs.items()})
            outputs = named_outputs(self._pipeline.build(tables), frame, self._path, self._pipeline.output)
            outputs |= context.expectations.set_aside
            views = {name: f"{prefix}{index}" for index, name in enumerate(outputs)}
            for name, view in views.items():
                outputs[name].createOrReplaceGlobalTempView(view)
        except GreteError:
            raise
        except (Exception, SystemExit) as error:
            raise build_failed(self._path, error) from error
        return views


def _connected(address: str) -> tuple[type, Any]:
    """The class of DataFrames, and a session of Spark Connect's."""
    os.environ.setdefault("no_grpc_proxy", "localhost")
    os.environ.pop("MASTER", None)  # on YARN Spark sets it for the driver, and a client refuses to have both
    try:
        sql = importlib.import_module("pyspark.sql")
        importlib.import_module("pyspark.sql.connect.session")
        return sql.DataFrame, sql.SparkSession.builder.remote(address).getOrCreate()
    except ImportError as error:
        raise ConfigError(
            f"the application's environment cannot speak Spark Connect ({error}); a DataFrame pipeline with "
            f"job.split.deployment.enabled=true needs the package pyspark-client there, 4.0.1 or later"
        ) from error
