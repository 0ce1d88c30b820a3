"""The two jobs once more, with their outputs on Kafka. Nothing else about them differs."""

from __future__ import annotations

import carriers
import inherited_delays


class Carriers(carriers.Carriers):
    """Writes to the topic `carriers`."""

    output = "kafka.carriers"


class InheritedDelays(inherited_delays.InheritedDelays):
    """Writes to the topic `inherited-delays`."""

    output = "kafka.inherited-delays"
