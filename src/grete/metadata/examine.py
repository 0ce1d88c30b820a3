"""Reads every type of record that a start reads, so that whatever is not understood shows."""

from __future__ import annotations

from grete.metadata.assignments import ChangelogMapping
from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream
from grete.metadata.history import HISTORY
from grete.metadata.input_streams import read_input_uids
from grete.metadata.job_state import AT_WORK, CLONE, REQUEST, STATE
from grete.metadata.launches import BROKEN_OFF, LAUNCH
from grete.metadata.quarantine import Quarantined
from grete.model.messages import VALUE_FIELDS

_OF_GRETE = (GENERATION, HISTORY, STATE, REQUEST, CLONE, AT_WORK, LAUNCH, BROKEN_OFF)


def examined(stream: CoordinatorStream) -> list[Quarantined]:
    """The records that are not understood, by offset."""
    for message_type in VALUE_FIELDS:
        stream.values(message_type)
    for message_type in _OF_GRETE:
        stream.messages(message_type)
    read_input_uids(stream)
    ChangelogMapping(stream).unreadable()
    return stream.quarantined
