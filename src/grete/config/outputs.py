"""The streams that a job's configuration says it writes."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config import java_values
from grete.config.poison import dead_letter_stream
from grete.config.streams import system_stream_from_names
from grete.model.ids import SystemStream


def declared_outputs(config: Mapping[str, str]) -> list[SystemStream]:
    """`task.outputs`, and the stream of dead letters.

    Raises:
        ConfigError: an entry without a dot.
    """
    named = java_values.split_commas(config.get("task.outputs", ""))
    outputs = [system_stream_from_names(name.strip()) for name in named if name.strip()]
    letters = dead_letter_stream(config)
    return outputs if letters is None else [*outputs, letters]
