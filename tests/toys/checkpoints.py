"""Checkpoints in a folder: a file of JSON for each task, replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import quote

from grete.checkpoint.store import CheckpointStore, StoreContext, StoredCheckpoint
from grete.model.ids import SystemStreamPartition, TaskName


class FolderCheckpointStore(CheckpointStore):
    """An entry point is called with the context: a class will do."""

    def __init__(self, context: StoreContext) -> None:
        self._folder = Path(context.settings.task.checkpoint_path or context.home / "toy-checkpoints")
        self._folder.mkdir(parents=True, exist_ok=True)

    def path(self, task: TaskName) -> Path:
        return self._folder / quote(task, safe="")

    def read(self, tasks: Collection[TaskName]) -> dict[TaskName, StoredCheckpoint]:
        return {task: self._read(self.path(task)) for task in tasks if self.path(task).exists()}

    def _read(self, path: Path) -> StoredCheckpoint:
        try:
            document = json.loads(path.read_text())
            offsets = {
                SystemStreamPartition.parse(ssp): offset for ssp, offset in document["offsets"].items()
            }
        except ValueError as error:
            return StoredCheckpoint(None, problem=f"{path}: {error}")
        return StoredCheckpoint(offsets, document.get("commit"))

    def write(self, checkpoints: Mapping[TaskName, StoredCheckpoint]) -> None:
        for task, checkpoint in checkpoints.items():
            offsets = {str(ssp): offset for ssp, offset in (checkpoint.offsets or {}).items()}
            with (new := self.path(task).with_suffix(".new")).open("w") as file:
                json.dump({"offsets": offsets, "commit": checkpoint.commit}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path(task))

    def close(self) -> None:
        pass
