"""Kafka's own command line tools, as operators run them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from grete.testing import server_cluster
from grete.testing.kafka_broker import VERSION, jars_directory
from grete.testing.waiting import patient

_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_COLUMNS = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A line of `kafka-consumer-groups.sh --describe`, as it is shown."""

    group: str
    topic: str
    partition: int
    offset: str
    end: str
    lag: str


def described_groups(bootstrap: str) -> list[GroupRow]:
    """What `kafka-consumer-groups.sh --describe --all-groups` shows."""
    shown = _run(_GROUPS, "--bootstrap-server", bootstrap, "--describe", "--all-groups")
    rows = [line.split()[: len(_COLUMNS)] for line in shown.splitlines() if len(line.split()) >= 9]
    assert _COLUMNS in rows, shown
    return [
        GroupRow(group, topic, int(partition), *rest)
        for group, topic, partition, *rest in rows
        if group != _COLUMNS[0]
    ]


def _run(tool: str, *words: str) -> str:
    jars = [jars_directory(), server_cluster.jars_directory("GRETE_KAFKA_TOOLS", f"kafka-tools-{VERSION}")]
    path = ":".join(f"{directory}/*" for directory in jars)
    command = [
        server_cluster.java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        path,
        tool,
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
