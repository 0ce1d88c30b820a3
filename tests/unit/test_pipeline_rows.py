"""Rows of a pipeline: which columns they may have, where they go on the embedded system."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import ConfigError
from grete.spark.pipeline_rows import check_types
from grete.spark.sinks.staged import by_partition
from grete.systems.partitioner import partition_of

Records = list[tuple[bytes | None, bytes | None]]


@pytest.mark.parametrize("name", ["key", "value"])
def test_a_column_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"column '{name}' must be string or binary, it is int"):
        check_types({"key": "string", "value": "binary", "other": "date", name: "int"}, ("key", "value"))


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=3)), max_size=40),
    st.integers(1, 5),
)
def test_every_record_is_in_the_partition_of_its_key_in_its_order(records: Records, partitions: int) -> None:
    wanted: dict[int, Records] = {}
    for key, value in records:
        wanted.setdefault(0 if key is None else partition_of(key, partitions), []).append((key, value))
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    found = {
        partition: list(zip(k.to_pylist(), v.to_pylist(), strict=True))
        for partition, k, v in by_partition(keys, values, partitions)
    }
    assert found == wanted
