"""Characters of two UTF-16 units: escaped where Samza writes bytes, raw where it writes a string."""

from __future__ import annotations

import pytest

from grete.errors import WireError
from grete.model.ids import SystemStreamPartition
from grete.model.startpoint import Startpoint, StartpointKind
from grete.wire import checkpoint_json, jackson_bytes, java_json, startpoint_json

FACE = "\U0001f600"
SSP = SystemStreamPartition("k", f"s{FACE}", 1)


def test_two_units_are_escaped_in_bytes_and_raw_in_strings() -> None:
    assert jackson_bytes.dumps({"a": FACE}) == b'{"a":"\\uD83D\\uDE00"}'
    assert java_json.dumps({"a": FACE}) == f'{{"a":"{FACE}"}}'.encode()


@pytest.mark.parametrize("text", ["é", "中", "\uffff", "\u0001", '"\\', "\u2028"])
def test_every_other_character_is_written_alike(text: str) -> None:
    assert jackson_bytes.dumps([text]) == java_json.dumps([text])
    assert jackson_bytes.loads(jackson_bytes.dumps([text])) == [text]


def test_an_unpaired_half_is_escaped_and_read_again() -> None:
    written = jackson_bytes.dumps(["\ud83d"])
    assert written == b'["\\uD83D"]'
    assert jackson_bytes.loads(written) == ["\ud83d"]


def test_a_byte_order_mark_is_skipped() -> None:
    assert jackson_bytes.loads(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.parametrize("offsets", [{}, {SSP: "7"}, {SSP: None}, {SSP: f"o{FACE}"}])
def test_checkpoints_round_trip(offsets: dict[SystemStreamPartition, str | None]) -> None:
    written = checkpoint_json.encode_v1(offsets)
    assert checkpoint_json.decode_v1(written) == offsets
    known = {ssp: o for ssp, o in offsets.items() if o is not None}
    assert checkpoint_json.read_v1(written) == checkpoint_json.CheckpointV1(known, {})
    assert written.isascii()


def test_a_startpoint_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(WireError, match="has no field 'x'"):
        startpoint_json.decode(b'{"@type":"StartpointOldest","creationTimestamp":1,"x":2}')


def test_numbers_and_texts_are_taken_for_each_other() -> None:
    read = startpoint_json.decode(
        b'{"@type":"StartpointTimestamp","creationTimestamp":"5","timestampOffset":7.9}'
    )
    assert read == Startpoint(StartpointKind.TIMESTAMP, 5, None, 7)


@pytest.mark.parametrize("text", ["a.b.99999999999999999999", "a.b.2147483648", "a.b.٣"])
def test_a_partition_beyond_an_int_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="is not a number from zero"):
        SystemStreamPartition.parse(text)
