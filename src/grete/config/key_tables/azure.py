"""Keys of Azure Storage: the account, and the places in it."""

from __future__ import annotations

from grete.config.key import BYTES, TEXT, ChangeClass, Key

CONNECT = Key(
    "azure.storage.connect",
    TEXT,
    None,
    ChangeClass.RESTART_CONTAINER,
    "Connection string of the storage account; write it as `${env:NAME}` or `${file:/path}`. One without key "
    "and signature uses the identity of the process.",
    is_secret=True,
)
CONTAINER = Key(
    "azure.storage.container",
    TEXT,
    "grete",
    ChangeClass.SET_ONCE,
    "The container whose blobs hold leaderships and large cells.",
)
CELL_TABLE = Key(
    "azure.storage.table",
    TEXT,
    "grete",
    ChangeClass.SET_ONCE,
    "The table that holds cells: locks, latches, members.",
)
CHECKPOINT_TABLE = Key(
    "task.checkpoint.azure.table",
    TEXT,
    "",
    ChangeClass.SET_ONCE,
    "The table of checkpoints, where they are in Azure.",
    default_doc="letters and digits of `job.name`, as Samza's",
)
BLOB_LENGTH = Key(
    "job.coordinator.azure.blob.length",
    BYTES,
    "5120000",
    ChangeClass.RESTART_CONTAINER,
    "Length of Samza's page blob.",
    unit="bytes",
    no_effect="nothing in Azure has a length that is set before",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
