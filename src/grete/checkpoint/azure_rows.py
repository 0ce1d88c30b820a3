"""The rows of a task's checkpoint in a table of Azure Storage, and which of them are one checkpoint.

Samza's: PartitionKey is the task's name, RowKey `{"system":…,"partition":…,"stream":…}`, `Offset` the offset. It
refuses names with characters that keys may not have; here such a key is escaped, behind a mark.

grete's own properties: `GreteJob`, `GreteWrite` (equal in all rows of one write), `GreteCommit`, `GreteDigest` of all
offsets of the write, `GreteCount` of them; and in `GreteBefore`, as JSON, the same of the checkpoint before, with the
row's offset of then. A write whose offsets have its digest is whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson

from grete.azure.names import escaped, unescaped
from grete.azure.tables import Row
from grete.checkpoint.store import Offsets, digest
from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStreamPartition, TaskName

_MARK = "=grete="
_FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
_LONGEST_KEY = 512


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A write of a task's checkpoint by grete. `commit` is empty for an operator's."""

    job: str
    token: str
    commit: str
    digest: str
    count: int


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it was read. `written` is None where another program wrote it; `before` is of the write before."""

    key: str
    ssp: SystemStreamPartition | None
    offset: str
    written: WrittenCheckpoint | None = None
    before: tuple[str, WrittenCheckpoint] | None = None


def key(text: str) -> str:
    """A task's name, or an SSP's JSON, as a key: itself wherever it can be.

    Raises:
        ConfigError: it is too long for one.
    """
    is_plain = not _FORBIDDEN.search(text) and not text.startswith(_MARK)
    made = text if is_plain else _MARK + escaped(text)
    if len(made) > _LONGEST_KEY:
        raise ConfigError(
            f"checkpoints in Azure: {text[:60]!r}... is too long for the key of a row ({_LONGEST_KEY} characters); "
            f"set task.checkpoint.factory=grete.checkpoint.log"
        )
    return made


def ssp_json(ssp: SystemStreamPartition) -> str:
    """As Samza writes it: texts, in the order of a Java HashMap."""
    return orjson.dumps(
        {"system": ssp.system, "partition": str(ssp.partition), "stream": ssp.stream}
    ).decode()


def stored_row(row: Row) -> StoredRow:
    """The row; `ssp` is None where its key is no SSP."""
    properties = (row.get(f"Grete{name}") for name in ("Job", "Write", "Commit", "Digest", "Count"))
    job, token, commit, digest_, count = properties
    written = (
        WrittenCheckpoint(job, token, commit or "", digest_ or "", int(count or 0)) if token and job else None
    )
    return StoredRow(row["RowKey"], _ssp(row["RowKey"]), str(row.get("Offset", "")), written, _before(row))


def _before(row: Row) -> tuple[str, WrittenCheckpoint] | None:
    try:
        document = orjson.loads(row.get("GreteBefore") or "null")
        return None if document is None else (document["offset"], WrittenCheckpoint(**document["written"]))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _ssp(row_key: str) -> SystemStreamPartition | None:
    text = row_key
    if row_key.startswith(_MARK):
        text = unescaped(row_key.removeprefix(_MARK))
    try:
        document = orjson.loads(text)
        return SystemStreamPartition(document["system"], document["stream"], int(document["partition"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def whole(rows: Sequence[StoredRow]) -> tuple[Offsets, WrittenCheckpoint | None]:
    """The task's offsets, with the write that they come from; None where another program wrote or changed them.

    Raises:
        WireError: a key that is no SSP, or rows of several writes of which none is whole.
    """
    strange = [row.key for row in rows if row.ssp is None]
    if strange:
        raise WireError(f"the RowKey {strange[0]!r} is no SSP")
    current = {row.ssp: row.offset for row in rows if row.ssp is not None}
    if any(row.written is None for row in rows):
        return current, None
    latest = {row.written.token: row.written for row in rows if row.written is not None}
    earlier = {row.before[1].token: row.before[1] for row in rows if row.before is not None}
    in_order = [written for token, written in latest.items() if token not in earlier]
    for written in [*in_order, *earlier.values()]:
        offsets = _offsets_of(rows, written.token)
        if digest(offsets) == written.digest:
            return offsets, written
    if len(latest) == 1 and len(rows) == next(iter(latest.values())).count:
        return current, None  # an offset was changed by hand, and our properties stayed
    raise WireError(f"{len(rows)} rows of {len(latest)} writes, of which none is whole")


def _offsets_of(rows: Sequence[StoredRow], token: str) -> dict[SystemStreamPartition, str]:
    found: dict[SystemStreamPartition, str] = {}
    for row in rows:
        if row.ssp is not None and row.written is not None and row.written.token == token:
            found[row.ssp] = row.offset
        elif row.ssp is not None and row.before is not None and row.before[1].token == token:
            found[row.ssp] = row.before[0]
    return found


def encoded(
    task: TaskName,
    offsets: Offsets,
    written: WrittenCheckpoint,
    before: WrittenCheckpoint | None,
    rows: Sequence[StoredRow],
) -> list[Row]:
    """The rows of a checkpoint. `rows` are what there is, in which `before` is whole."""
    old = {} if before is None else _offsets_of(rows, before.token)
    made: list[Row] = []
    for ssp, offset in sorted(offsets.items()):
        row: dict[str, str | int] = {
            "PartitionKey": key(task),
            "RowKey": key(ssp_json(ssp)),
            "Offset": offset,
            **_own(written),
        }
        if before is not None and ssp in old:
            document = {"offset": old[ssp], "written": asdict(before)}
            row["GreteBefore"] = orjson.dumps(document).decode()
        made.append(row)
    return made


def encoded_empty(partition: str, task: TaskName, written: WrittenCheckpoint) -> Row:
    """The row of a checkpoint without offsets."""
    return {"PartitionKey": partition, "RowKey": key(task), **_own(written)}


def _own(written: WrittenCheckpoint) -> dict[str, str | int]:
    return {
        "GreteJob": written.job,
        "GreteWrite": written.token,
        "GreteCommit": written.commit,
        "GreteDigest": written.digest,
        "GreteCount": written.count,
    }
