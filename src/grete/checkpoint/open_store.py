"""The checkpoint store that `task.checkpoint.factory` names."""

from __future__ import annotations

from grete.checkpoint.store import CheckpointStore, StoreContext
from grete.config import aliases
from grete.config.key_tables.task import CHECKPOINT_FACTORY
from grete.registry import load_object

LOG = "grete.checkpoint.log"
BUILT_IN = {
    "grete.checkpoint.coordinator-stream": (
        "grete.checkpoint.coordinator_stream_store:CoordinatorStreamCheckpointStore"
    ),
    "grete.checkpoint.file-system": "grete.checkpoint.file_system_store:FileSystemCheckpointStore",
    "grete.checkpoint.azure-table": "grete.checkpoint.azure_table_store:AzureTableCheckpointStore",
}


def open_store(context: StoreContext) -> CheckpointStore | None:
    """Open it; None when the job's checkpoint log is all there is.

    Raises:
        ConfigError: the name is not known, or the store misses a setting.
    """
    name = context.settings.task.checkpoint_store
    if name == LOG:
        return None
    made = load_object(aliases.CHECKPOINTS, name, built_in=BUILT_IN, used_by=CHECKPOINT_FACTORY.name)(context)
    assert isinstance(made, CheckpointStore), f"{name} is no CheckpointStore"
    return made
