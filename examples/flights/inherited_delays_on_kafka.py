"""The StreamTask once more, with its output on Kafka. Nothing else about it differs."""

from __future__ import annotations

import inherited_delays


class InheritedDelays(inherited_delays.InheritedDelays):
    """Writes to the topic `inherited-delays`."""

    output = "kafka.inherited-delays"
