"""Earlier configurations after a broker has compacted a coordinator stream."""

from __future__ import annotations

import uuid
from contextlib import closing

from grete.clock import SystemClock
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.metadata.config_history import config_generations
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.testing.kafka_broker import KafkaCluster

GOOD = {"job.name": "j", "task.class": "m:C", "task.inputs": "local.in"}
LIMIT = "task.max.records.per.batch"


def test_generations_that_a_broker_has_compacted_are_not_taken_for_whole(kafka: KafkaCluster) -> None:
    settings = KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1)
    clock = SystemClock()
    with closing(KafkaKeyedLog(f"stream-{uuid.uuid4().hex[:8]}", settings, clock)) as log:
        stream = CoordinatorStream(log, clock, source="test")
        stream.write_config({**GOOD, LIMIT: "100"}, run_id="a")
        stream.put("set-config", {"my.own": "1"})
        stream.change_config({LIMIT: "5000"}, run_id="a")
        had = [dict(one.config) for one in config_generations(log)]
        assert [one.whole for one in config_generations(log)] == [True] * 3
        log.compact()
        stream.change_config({LIMIT: "200"}, run_id="a")
        stream.change_config({LIMIT: "300"}, run_id="a")
        left = config_generations(log)
        had += [{**had[-1], LIMIT: "200"}, {**had[-1], LIMIT: "300"}]
        assert next(one.config in had for one in left if not one.whole) is False
        assert [one.config for one in left if one.whole][-2:] == had[-2:]
        assert all(one.config in had for one in left if one.whole)
