"""The streams that a job writes: made by its coordinator, which has all inputs; containers only look for them.

A partition count is for ever, and a container has its own inputs alone: two of them would disagree.
"""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.model.ids import SystemStream
from grete.model.streams import StreamSpec
from grete.systems.base import System


def create_outputs(
    settings: Settings, name: str, system: System, partitions: Mapping[SystemStream, int]
) -> None:
    """Create the declared outputs that the system `name` lacks.

    They get as many partitions as they say themselves, else as the largest of the job's inputs has.

    Raises:
        StreamError: the system cannot create one.
    """
    largest = max(partitions.values(), default=1)
    for stream in settings.task.written_streams:
        known_as = _known_as(settings, name, stream)
        try:
            system.partition_count(known_as)
        except StreamNotFound:
            system.create_stream(StreamSpec(known_as, settings.stream(stream).partitions or largest))


def check_outputs(settings: Settings, name: str, system: System) -> None:
    """Look for the declared outputs.

    Raises:
        StreamNotFound: one is not there.
    """
    for stream in settings.task.written_streams:
        try:
            system.partition_count(_known_as(settings, name, stream))
        except StreamNotFound as error:
            raise StreamNotFound(
                f"the output {stream} is not there any more: the job's coordinator makes outputs when it starts. Run "
                f"the job again, or create it: grete stream create {stream} --partitions N"
            ) from error


def _known_as(settings: Settings, name: str, stream: SystemStream) -> str:
    return settings.system(name).name_of(stream) or stream.stream
