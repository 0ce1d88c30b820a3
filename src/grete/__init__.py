"""grete: a coordinator stream, job coordinator and readable checkpoints for PySpark streaming jobs.

Public names are those re-exported here; see `grete.api`.
"""

from grete.api import AsyncStreamTask as AsyncStreamTask
from grete.api import Batch as Batch
from grete.api import Counter as Counter
from grete.api import DataFramePipeline as DataFramePipeline
from grete.api import Gauge as Gauge
from grete.api import IncomingMessageEnvelope as IncomingMessageEnvelope
from grete.api import KeyValueStore as KeyValueStore
from grete.api import MessageCollector as MessageCollector
from grete.api import MetricsRegistry as MetricsRegistry
from grete.api import PipelineContext as PipelineContext
from grete.api import Scheduler as Scheduler
from grete.api import Serde as Serde
from grete.api import StreamTask as StreamTask
from grete.api import TaskContext as TaskContext
from grete.api import TaskCoordinator as TaskCoordinator
from grete.api import Timer as Timer
from grete.errors import GreteError as GreteError
from grete.model.ids import SystemStream as SystemStream
from grete.model.ids import SystemStreamPartition as SystemStreamPartition
from grete.model.ids import TaskName as TaskName

__version__ = "0.1.0"
