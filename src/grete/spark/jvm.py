"""The private doors of PySpark's that grete goes through to Spark's JVM, each with one name: all of them are here.

PySpark promises none of them. They hold for the classic sessions of Spark 4.2; a new version of Spark is a change
here and in tests/e2e/test_jvm_doors.py. What is called on the objects behind them (Scala's and Java's public classes)
stands where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

_PORT, _TOKEN = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""Variables by which PySpark goes to a JVM that runs already."""
_OF_NUMPY = (NumpyArrayConverter, NumpyScalarConverter)


def jvm_of(running: SparkSession | SparkContext) -> Any:
    """The root of the packages of a session's or a context's JVM (Py4J's `JVMView`)."""
    return running._jvm


def jvm_of_process() -> Any:
    """As `jvm_of`, of this process, which has one JVM at most; None while it has none."""
    return SparkContext._jvm


def gateway_of_process() -> Any:
    """Py4J's gateway to the JVM of this process, whose `proc` is the JVM where this process started it;
    None while it has none."""
    return SparkContext._gateway


def gateway_of(context: SparkContext) -> Any:
    """As `gateway_of_process`, of a context's JVM."""
    return context._gateway


def forget_jvm() -> None:
    """Let the next context start a JVM of its own, whatever becomes of the one before."""
    SparkContext._gateway = SparkContext._jvm = None


def start_jvm_of_process(conf: SparkConf, said: IO[bytes] | None) -> None:
    """Start the JVM of this process without a context. Its log goes to `said`, or to standard error."""
    gateway = None if said is None else launch_gateway(conf, {"stderr": said})
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    _ask_of_numpys_alone()


def _ask_of_numpys_alone() -> None:
    """Let PySpark look for numpy when something of numpy's is to be converted, and not at the first call.

    To look it imports its tools for tests, and with them pandas and protobuf: 0.25 s of a processor and 45 MB in each
    process that has a JVM.
    """
    converters = SparkContext._gateway._gateway_client.converters
    ours = [one if type(one) not in _OF_NUMPY else _OfNumpyAlone(one) for one in converters]
    converters[:] = ours  # in place: classes that were looked up have the list


class _OfNumpyAlone:
    """A converter of Py4J's that is asked of numpy's arrays and numbers alone."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self.convert = own.convert

    def can_convert(self, given: Any) -> bool:
        """See Py4J's converters."""
        numpy = sys.modules.get("numpy")  # who has an array has it
        is_numpys = numpy is not None and isinstance(given, (numpy.ndarray, numpy.generic))
        return is_numpys and bool(self._own.can_convert(given))


def address_of(gateway: Any) -> tuple[int, str]:
    """Port and password of a gateway, by which another process reaches the same JVM."""
    return gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token


def reach_jvm(port: int, token: str) -> None:
    """Let this process use a JVM that another one has started. A context that a dead process left in it is stopped.

    Raises:
        Exception: of several kinds, where it does not answer.
    """
    os.environ |= {_PORT: str(port), _TOKEN: token}
    try:
        SparkContext._ensure_initialized()
        _ask_of_numpys_alone()
        contexts = getattr(getattr(jvm_of_process().org.apache.spark, "SparkContext$"), "MODULE$")
        left = contexts.getActive()
        if left.isDefined():
            left.get().stop()
        sessions = jvm_of_process().org.apache.spark.sql.classic.SparkSession
        sessions.clearDefaultSession()
        sessions.clearActiveSession()
    except BaseException:
        forget_jvm()
        raise
    finally:
        del os.environ[_PORT], os.environ[_TOKEN]


def context_of_process() -> SparkContext | None:
    """The context that runs in this process. PySpark names one seconds before it can be used."""
    return SparkContext._active_spark_context


def conf_of(context: SparkContext) -> SparkConf:
    """The settings that a running context was started with."""
    conf = context._conf
    assert conf is not None, "it runs"
    return conf


def java_conf(settings: Mapping[str, str]) -> Any:
    """A `SparkConf` of the JVM with these settings alone."""
    return SparkConf(_jvm=SparkContext._jvm).setAll(list(settings.items()))._jconf


def default_session() -> SparkSession | None:
    """The session that `SparkSession.builder.getOrCreate` gives in this process."""
    return SparkSession._instantiatedSession


def sessions_of_python() -> tuple[SparkSession | None, SparkSession | None]:
    """What PySpark holds as the default and the active session of this process, to be put back by `put_back`."""
    return SparkSession._instantiatedSession, SparkSession._activeSession


def put_back(sessions: tuple[SparkSession | None, SparkSession | None]) -> None:
    """See `sessions_of_python`."""
    SparkSession._instantiatedSession, SparkSession._activeSession = sessions


def java_sessions(running: SparkSession | SparkContext) -> Any:
    """The class of the JVM that knows the default and the active session."""
    jvm: Any = running._jvm
    return SparkSession._get_j_spark_session_class(jvm)


def java_session(session: SparkSession) -> Any:
    """The session in the JVM."""
    return session._jsparkSession


def java_context(context: SparkContext) -> Any:
    """Java's context (`JavaSparkContext`); `.sc()` is Scala's."""
    return context._jsc


def hadoop_configuration(context: SparkContext) -> Any:
    """Hadoop's configuration of a context, with its `spark.hadoop.*`."""
    java: Any = context._jsc
    return java.hadoopConfiguration()


def state_repartitioner(session: SparkSession) -> Callable[[str, int], None] | None:
    """What moves the state in a checkpoint location into another number of partitions, by a batch that reads nothing
    (`StreamingCheckpointManager`); None before Spark 4.2.
    """
    manager = getattr(session, "_streamingCheckpointManager", None)
    return None if manager is None else manager.repartition


def query_execution(frame: DataFrame) -> Any:
    """What Spark has made of a frame, from the analysed plan to what executors run."""
    return frame._jdf.queryExecution()


def java_query(query: StreamingQuery) -> Any:
    """A streaming query in the JVM."""
    return query._jsq


def java_seq(jvm: Any, items: list[Any]) -> Any:
    """A sequence of Scala's."""
    return jvm.PythonUtils.toSeq(items)


def java_map(jvm: Any, items: Any) -> Any:
    """A map of Scala's, of a `java.util.Map`."""
    return jvm.PythonUtils.toScalaMap(items)
