"""Write an archive of the classes that a Kafka broker loads, from which its JVM starts with half the work.

    python scripts/kafka_archive.py ARCHIVE

The archive holds for this Java and these jars; Java starts without it when either is another one. `KafkaCluster`
finds it beside the jars.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from grete.testing.kafka_broker import KafkaCluster


class RecordedBroker(KafkaCluster):
    """A broker whose JVM writes at its end what it has loaded."""

    archive: Path

    def _java(self, *words: str) -> list[str]:
        java, *others = super()._java(*words)
        recorded = [f"-XX:ArchiveClassesAtExit={self.archive}", "-Xlog:disable"]
        return [java, *(recorded if words[0] == "kafka.Kafka" else []), *others]


def main(archive: Path) -> None:
    """Start a broker, and end it in order."""
    unfinished = archive.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as directory:
        broker = RecordedBroker(Path(directory))
        broker.archive = unfinished
        broker.start()
        pid = int(broker.nodes[0].pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    unfinished.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
