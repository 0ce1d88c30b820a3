"""Whole columns of records go where each of their keys would go by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grete.api import Serde
from grete.application.serdes import BytesSerde, IntegerSerde, LongSerde, StringSerde
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.systems.eventhubs.hash import hub_partitioner
from grete.systems.partitioner import Partitioner, partition_of, samza_partition_of
from grete.systems.placement import Placement
from grete.systems.records import records

SERDES = [BytesSerde(), StringSerde(), IntegerSerde(), LongSerde()]
HUB = SystemStream("hubs", "out")
SMALLEST = (-1 << 31).to_bytes(4, "big", signed=True)
"""Of the integers, the one that has no absolute value among them."""
keys = st.lists(
    st.none()
    | st.binary(max_size=13)
    | st.text(max_size=9).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.integers(-(1 << 31), (1 << 31) - 1).map(lambda number: number.to_bytes(4, "big", signed=True))
    | st.integers(0, (1 << 64) - 1).map(lambda number: number.to_bytes(8, "big"))
    | st.binary(min_size=255, max_size=260),
    max_size=30,
)


def column(given_keys: Sequence[bytes | None]) -> pa.Array:
    """As a part of a longer one, as columns come from a segment."""
    return pa.array([b"before", *given_keys, b"behind"], pa.binary()).slice(1, len(given_keys))


@pytest.mark.parametrize("serde", SERDES, ids=lambda serde: type(serde).__name__)
@given(keys, st.integers(1, 70_000))
@example([], 3)
@example([b""], 3)
@example([SMALLEST, b"\x00" * 4], 7)
@example([b"polygenelubricants", "Grüße".encode(), b"x" * 257], 1 << 30)
def test_a_column_of_keys_goes_where_each_key_goes(
    serde: Serde, given_keys: list[bytes | None], partitions: int
) -> None:
    choose = samza_partition_of(serde)
    wanted = [None if key is None else choose(key, partitions) for key in given_keys]
    found = choose.of_each(column(given_keys), partitions).tolist()
    assert [None if key is None else one for key, one in zip(given_keys, found, strict=True)] == wanted


@pytest.mark.parametrize("method", ["EVENT_HUB_HASHING", "PARTITION_KEY_AS_PARTITION"])
@given(keys)
def test_a_column_of_keys_goes_where_event_hubs_puts_each(
    method: str, given_keys: list[bytes | None]
) -> None:
    choose = of_hub(method)
    for partitions in (5, 7):
        wanted = [None if key is None else choose(key, partitions) for key in given_keys]
        found = choose.of_each(column(given_keys), partitions).tolist()
        assert [None if key is None else one for key, one in zip(given_keys, found, strict=True)] == wanted


def test_in_turn_every_record_goes_to_the_next_partition_whatever_its_key() -> None:
    choose = of_hub("ROUND_ROBIN")
    assert choose.of_each(column([b"a"] * 4), 3).tolist() == [0, 1, 2, 0]
    assert choose.of_each(column([b"a", b"b"]), 3).tolist() == [1, 2]


def of_hub(method: str) -> Partitioner:
    config = {"systems.hubs.eventhubs.partition.method": method, "systems.hubs.samza.key.serde": "integer"}
    return hub_partitioner(Settings.of(config), HUB)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=6), st.integers(-1, 4))), st.integers(1, 5))
@example([], 1)
def test_every_record_is_in_the_partition_of_its_key_or_in_that_which_was_chosen_in_its_order(
    rows: list[tuple[bytes | None, int]], partitions: int
) -> None:
    own = partitions - 1
    given_rows = [(key, min(chosen, own)) for key, chosen in rows]
    wanted: dict[int, list[tuple[bytes | None, int]]] = {}
    for number, (key, chosen) in enumerate(given_rows):
        by_key = own if key is None else partition_of(key, partitions)
        wanted.setdefault(by_key if chosen < 0 else chosen, []).append((key, number))
    batch = records([key for key, _ in rows], [b""] * len(rows), list(range(len(rows))))
    split = Placement(partitions, partition_of, own).split(
        batch, np.array([chosen for _, chosen in given_rows], np.int32)
    )
    found = {
        partition: list(zip(part.column(0).to_pylist(), part.column(2).to_pylist(), strict=True))
        for partition, part in split
    }
    assert found == wanted
