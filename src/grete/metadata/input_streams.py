"""Which streams the job's checkpoints are offsets of, as grete's own records: a stream's name may outlive it."""

from __future__ import annotations

from collections.abc import Mapping

from grete.errors import WireError
from grete.metadata.assignments import Record
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import SystemStream

INPUT = "grete-input-stream"


def read_input_uids(stream: CoordinatorStream) -> dict[SystemStream, str]:
    """The unique id of each input when the job model was last made of it."""
    found = {}
    for key, message in stream.messages(INPUT).items():
        uid = (message.values or {}).get("uid")
        try:
            name = SystemStream.parse(key)
        except WireError as error:
            stream.set_aside(INPUT, key, str(error))
            continue
        if uid:
            found[name] = uid
    return found


def input_records(uids: Mapping[SystemStream, str]) -> list[Record]:
    """The records that remember the inputs, for the append that makes the model; an empty uid is no id."""
    return [(INPUT, str(one), {"uid": uid}) for one, uid in sorted(uids.items()) if uid]
