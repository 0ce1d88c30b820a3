"""Startpoints as offsets: which record is the next to be read."""

from __future__ import annotations

from grete.checkpoint.offset_manager import check_in_range
from grete.errors import WireError
from grete.model.ids import SystemStreamPartition
from grete.model.startpoint import Startpoint, StartpointKind
from grete.systems.admin import OffsetAdmin, PartitionOffsets


def resolve(
    startpoint: Startpoint,
    ssp: SystemStreamPartition,
    offsets: PartitionOffsets,
    admin: OffsetAdmin,
    *,
    is_written: bool = True,
) -> str:
    """The next offset to read. A timestamp after the last record means upcoming, as in Samza's Kafka system.

    One that is not written yet needs not be taken back.

    Raises:
        OffsetOutOfRange: a specific offset that retention has removed, or that is past the end.
        WireError: a startpoint without the value that its kind needs.
    """
    match startpoint.kind:
        case StartpointKind.OLDEST:
            return offsets.upcoming if offsets.oldest is None else offsets.oldest
        case StartpointKind.UPCOMING:
            return offsets.upcoming
        case StartpointKind.TIMESTAMP:
            if startpoint.timestamp_ms is None:
                raise WireError(f"the startpoint of {ssp} has no timestamp")
            return admin.offset_at(ssp, startpoint.timestamp_ms)
        case StartpointKind.SPECIFIC:
            if startpoint.offset is None:
                raise WireError(f"the startpoint of {ssp} has no offset")
            check_in_range(
                startpoint.offset,
                offsets,
                admin,
                f"the startpoint of {ssp} asks for offset {startpoint.offset}",
                "Take it back with: grete startpoint delete, or ask for another offset"
                if is_written
                else "Nothing was written: ask for another offset",
            )
            return startpoint.offset
