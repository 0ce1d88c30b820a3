"""Columns to values: the fast ways give what the serde gives, value by value, and fail where it fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.api import Serde
from grete.application.serdes import BytesSerde, JsonSerde, StringSerde
from grete.tasks.decoding import values_of
from grete.wire import compact_json

texts = st.none() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
documents = st.none() | st.sampled_from(
    [b"1", b"{}", b'{"a":[1,2]}', b"null", b"", b"[1", b"2]", b"3,4", b"NaN"]
)


def outcome(values: Any) -> tuple[list[Any], type[BaseException] | None]:
    """The values up to the first that fails, and how it fails."""
    made = []
    try:
        for value in values:
            made.append(value)
    except ValueError as error:
        return made, type(error)
    return made, None


@settings(deadline=None)
@given(st.lists(texts | documents), st.sampled_from([BytesSerde(), StringSerde(), JsonSerde()]))
def test_a_column_gives_what_the_serde_gives_value_by_value(values: list[bytes | None], serde: Serde) -> None:
    expected = outcome(map(serde.from_bytes, values))
    assert outcome(values_of(pa.array(values, pa.binary()), serde)) == expected


def test_a_serde_of_the_applications_own_sees_every_value() -> None:
    class Shouting(StringSerde):
        def from_bytes(self, data: bytes | None) -> Any:
            return "NOTHING" if data is None else data.decode().upper()

    assert list(values_of(pa.array([b"a", None], pa.binary()), Shouting())) == ["A", "NOTHING"]


@pytest.mark.parametrize("dumps", [compact_json.dumps, JsonSerde().to_bytes])
def test_serialised_values_keep_no_more_memory_than_they_need(dumps: Any) -> None:
    before = resident_kb()
    kept = [dumps([number]) for number in range(50_000)]
    assert (resident_kb() - before) / len(kept) < 1  # orjson's own results take 4 KB each


def resident_kb() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
