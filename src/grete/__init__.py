"""grete: a coordinator stream, job coordinator and readable checkpoints for PySpark streaming jobs.

Public names are those re-exported here; see `grete.api`.
"""

from typing import TYPE_CHECKING, Any

from grete.api import AsyncStreamTask as AsyncStreamTask
from grete.api import Batch as Batch
from grete.api import Counter as Counter
from grete.api import DataFramePipeline as DataFramePipeline
from grete.api import Description as Description
from grete.api import Gauge as Gauge
from grete.api import IncomingMessageEnvelope as IncomingMessageEnvelope
from grete.api import KeyValueStore as KeyValueStore
from grete.api import MessageCollector as MessageCollector
from grete.api import MetricsRegistry as MetricsRegistry
from grete.api import PipelineContext as PipelineContext
from grete.api import Scheduler as Scheduler
from grete.api import Serde as Serde
from grete.api import Serdes as Serdes
from grete.api import SideInputsProcessor as SideInputsProcessor
from grete.api import StreamTask as StreamTask
from grete.api import SystemStreamPartitionGrouper as SystemStreamPartitionGrouper
from grete.api import TaskContext as TaskContext
from grete.api import TaskCoordinator as TaskCoordinator
from grete.api import Timer as Timer
from grete.errors import GreteError as GreteError
from grete.model.ids import SystemStream as SystemStream
from grete.model.ids import SystemStreamPartition as SystemStreamPartition
from grete.model.ids import TaskName as TaskName

if TYPE_CHECKING:
    from grete.embedded.processor import ProcessorListener as ProcessorListener
    from grete.embedded.processor import ProcessorState as ProcessorState
    from grete.embedded.processor import StreamProcessor as StreamProcessor

__version__ = "1.0.0"
_OF_PROCESSORS = ("ProcessorListener", "ProcessorState", "StreamProcessor")


def __getattr__(name: str) -> Any:
    """The names of embedded mode, which bring a coordinator along: applications that use none do without."""
    if name not in _OF_PROCESSORS:
        raise AttributeError(f"module 'grete' has no attribute {name!r}")
    from grete.embedded import processor

    return getattr(processor, name)
