"""Keys of grete's own records in the checkpoint log: of Samza's shape, with types of their own.

Samza's KafkaCheckpointManager skips a type that it does not know, and ends at a key that is no such object or names
another grouper. So nothing else is written; the shape `["grete-commit", task]` of earlier logs is read.
"""

from __future__ import annotations

from functools import lru_cache

import orjson

from grete.errors import WireError
from grete.model.ids import TaskName
from grete.wire import checkpoint_json

_KEYS_KNOWN = 1 << 14
"""Three for each task: a log has them again with each commit, and every share reads it as it begins."""


def own_key(kind: str, task: TaskName, grouper: str) -> bytes:
    """The key of a record of type `kind`."""
    return checkpoint_json.encode_log_key(grouper, task, kind)


@lru_cache(_KEYS_KNOWN)
def type_and_task(key: bytes) -> tuple[str, TaskName | None]:
    """Type and task of any key in the checkpoint log, Samza's own ones too.

    Raises:
        WireError: neither shape.
    """
    if not key.startswith(b"["):
        _, task, kind = checkpoint_json.decode_log_key(key)
        return kind, task
    try:
        kind, name = orjson.loads(key)
    except (orjson.JSONDecodeError, ValueError) as error:
        raise WireError(f"not a key of the checkpoint log: {error}") from error
    if not isinstance(kind, str) or not isinstance(name, str):
        raise WireError("not a key of the checkpoint log: [type, task] are texts")
    return kind, TaskName(name)
