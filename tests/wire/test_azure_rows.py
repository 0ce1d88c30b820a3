"""Rows of checkpoints that Samza 1.8.0's AzureCheckpointManager wrote, and ours for the same checkpoint."""

from __future__ import annotations

from grete.checkpoint.azure_rows import WrittenCheckpoint, encoded, stored_row, whole
from grete.checkpoint.store import digest
from grete.model.ids import SystemStreamPartition, TaskName

FROM_SAMZA = [
    {"PartitionKey": "Partition 0", "RowKey": row_key, "Offset": "45"}
    for row_key in (
        '{"system":"kafka","partition":"0","stream":"in.put"}',
        '{"system":"kafka","partition":"1","stream":"in.put"}',
        '{"system":"kafka","partition":"2","stream":"in.put"}',
    )
]
OFFSETS = {SystemStreamPartition("kafka", "in.put", partition): "45" for partition in range(3)}


def test_samzas_rows_are_read_as_another_programs() -> None:
    assert whole([stored_row(row) for row in FROM_SAMZA]) == (OFFSETS, None)


def test_our_rows_have_samzas_keys_and_offsets_byte_for_byte() -> None:
    written = WrittenCheckpoint("job-1", "token", "commit", digest(OFFSETS), len(OFFSETS))
    ours = encoded(TaskName("Partition 0"), OFFSETS, written, None, [])
    assert [{name: row[name] for name in FROM_SAMZA[0]} for row in ours] == FROM_SAMZA
    assert whole([stored_row(row) for row in ours]) == (OFFSETS, written)
