"""One run of OpenLineage for a pipeline, with all its inputs and all its outputs.

OpenLineage's listener makes a run of each of Spark's executions: the inputs are in that of the micro-batch, each
table is in a run of its own, and a topic that a transaction's producer writes is in none. So where the job's Spark
has that listener, grete reports one run more, of the job itself, by the listener's own transport.

`ArgumentParser` and `EventEmitter` are the listener's own classes and not its public interface (openlineage-spark
1.53.0). Where they have changed, the log says that the run is missing, and the job runs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.config.settings.outputs import JDBC
from grete.errors import GreteError
from grete.model.ids import SystemStream
from grete.spark.jvm import java_context, jvm_of
from grete.spark.session.kafka_options import StreamAddress, sink_settings

_log = logging.getLogger("grete.container")
_LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
_LISTENERS = "spark.extraListeners"
_PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/main/integration/spark"
_LONGEST_MESSAGE = 2_000
_LAST_EVENT_S = 10.0


@contextmanager
def reported(
    spark: SparkSession,
    settings: Settings,
    home: Path,
    inputs: Iterable[SystemStream],
    outputs: Iterable[SystemStream | str],
) -> Iterator[None]:
    """Report the block as one run of the job: started, then completed or failed. Nothing without the listener.

    An output is a stream or the name of one that `outputs.<name>.*` configures; a function of the application's own
    is no dataset. Events are sent by a thread, so that a receiver that does not answer delays no batch.
    """
    if _LISTENER not in spark.sparkContext.getConf().get(_LISTENERS, ""):
        yield
        return
    sender = _Sender(_Events(spark, settings, home, list(inputs), list(outputs)))
    sender.send("START")
    try:
        yield
    except Exception as error:
        sender.close("FAIL", str(error)[:_LONGEST_MESSAGE])
        raise
    sender.close("COMPLETE")


class _Sender:
    """Sends events one after the other in a thread, which holds up neither a batch nor the end of the process."""

    def __init__(self, events: _Events) -> None:
        self._events = events
        self._waiting: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grete-lineage", daemon=True)
        self._thread.start()

    def send(self, kind: str, message: str = "") -> None:
        """Send an event, sooner or later."""
        self._waiting.put((kind, message))

    def close(self, kind: str, message: str = "") -> None:
        """Send the last event, and wait for a moment until all are sent."""
        self.send(kind, message)
        self._waiting.put(None)
        self._thread.join(_LAST_EVENT_S)
        if self._thread.is_alive():
            _log.warning("OpenLineage has no %s of this job's run: no answer in %g s", kind, _LAST_EVENT_S)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._events.send(*event)
            except Exception:  # noqa: BLE001 - a thread begins here, and the next event may be taken
                _log.warning("OpenLineage has no %s of this job's run", event[0], exc_info=True)


class _Events:
    """The events of one run."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        home: Path,
        inputs: list[SystemStream],
        outputs: list[SystemStream | str],
    ) -> None:
        self._jvm: Any = jvm_of(spark)
        self._conf = java_context(spark.sparkContext).getConf()
        self._settings = settings
        self._home = home
        self._inputs = inputs
        self._outputs = outputs
        self._id = str(uuid.uuid4())

    def send(self, kind: str, message: str = "") -> None:
        """Send one event; what goes wrong is a warning."""
        try:
            agent = self._jvm.io.openlineage.spark.agent
            name = self._settings.job.id.shown
            emitter = agent.EventEmitter(agent.ArgumentParser.parse(self._conf), name)
            try:
                emitter.emit(self._event(kind, emitter.getJobNamespace(), name, message))
            finally:
                emitter.close()
        except (Py4JError, TypeError, GreteError) as error:  # Py4J calls a class that is not there a package
            _log.warning("OpenLineage has no %s of this job's run: %s", kind, str(error)[:_LONGEST_MESSAGE])

    def _event(self, kind: str, namespace: str, name: str, message: str) -> Any:
        made = self._jvm.io.openlineage.client.OpenLineage(self._jvm.java.net.URI(_PRODUCER))
        facets = made.newRunFacetsBuilder()
        if message:
            facets.errorMessage(made.newErrorMessageRunFacet(message, "python", None))
        job = made.newJobFacetsBuilder().jobType(
            made.newJobTypeJobFacetBuilder()
            .processingType("STREAMING")
            .integration("SPARK")
            .jobType("JOB")
            .build()
        )
        return (
            made.newRunEventBuilder()
            .eventTime(self._jvm.java.time.ZonedDateTime.now())
            .eventType(
                getattr(getattr(self._jvm.io.openlineage.client, "OpenLineage$RunEvent$EventType"), kind)
            )
            .run(made.newRun(self._jvm.java.util.UUID.fromString(self._id), facets.build()))
            .job(made.newJob(namespace, name, job.build()))
            .inputs(self._datasets(self._inputs, made.newInputDataset))
            .outputs(self._datasets(self._outputs, made.newOutputDataset))
            .build()
        )

    def _datasets(self, of: Iterable[SystemStream | str], make: Any) -> Any:
        datasets = self._jvm.java.util.ArrayList()
        for one in of:
            named = self._stream(one) if isinstance(one, SystemStream) else self._table(one)
            if named is not None:
                datasets.add(make(*named, None, None))
        return datasets

    def _stream(self, stream: SystemStream) -> tuple[str, str]:
        system = self._settings.system(stream.system)
        if system.capabilities.is_embedded:
            return f"file:{system.directory(self._home).absolute()}", stream.stream
        address = StreamAddress.of(self._settings, stream)
        brokers = sink_settings(self._settings, stream.system, address)["kafka.bootstrap.servers"]
        return f"kafka://{brokers.split(',')[0].strip()}", address.topic

    def _table(self, name: str) -> tuple[str, str] | None:
        """As the listener itself names it, so that both are one dataset."""
        output = self._settings.outputs.get(name)
        if output is None:
            return None
        utils = self._jvm.io.openlineage.client.utils
        if output.format == JDBC:
            none = self._jvm.java.util.Properties()
            found = utils.jdbc.JdbcDatasetUtils.getDatasetIdentifier(output.url, output.target_table, none)
        else:
            path = self._jvm.org.apache.hadoop.fs.Path(output.target_path)
            place = path.getFileSystem(self._jvm.org.apache.hadoop.conf.Configuration()).makeQualified(path)
            found = utils.filesystem.FilesystemDatasetUtils.fromLocation(place.toUri())
        return found.getNamespace(), found.getName()
