"""The pipeline once more, with its output on Kafka. Nothing else about it differs."""

from __future__ import annotations

import carriers


class Carriers(carriers.Carriers):
    """Writes to the topic `carriers`."""

    output = "kafka.carriers"
