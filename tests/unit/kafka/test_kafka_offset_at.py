"""An offset by its time, while a partition may have no leader. No broker: the answers are given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from grete.clock import SystemClock
from grete.kafka.client import KafkaConnection

WHERE = TopicPartition("t", 0)
NONE = -1


@pytest.mark.parametrize(
    ("by_time", "ends", "wanted"),
    [
        ([7], [], 7),
        ([NONE, NONE], [9], 9),
        ([NONE, 7], [NONE, 9], 7),
    ],
    ids=["there is one", "there is none", "the leader was away"],
)
def test_none_counts_when_the_partition_has_a_leader(
    monkeypatch: pytest.MonkeyPatch, by_time: list[int], ends: list[int], wanted: int
) -> None:
    """Else a startpoint by time would skip everything, in the moment in which a leader changes."""

    def answer(
        self: KafkaConnection, asked: Mapping[TopicPartition, OffsetSpec], *, is_stable: bool
    ) -> dict[TopicPartition, int]:
        assert is_stable
        is_end = type(asked[WHERE]) is type(OffsetSpec.latest())
        return {WHERE: (ends if is_end else by_time).pop(0)}

    monkeypatch.setattr(KafkaConnection, "list_offsets", answer)
    monkeypatch.setattr(KafkaConnection, "learn_leaders", lambda self: None)
    connection = KafkaConnection({"bootstrap.servers": "127.0.0.1:1"}, 5.0, SystemClock())
    assert connection.offset_at("t", 0, 1_000) == wanted
    assert (by_time, ends) == ([], [])
