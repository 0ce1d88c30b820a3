"""bytewax: two worker processes (`python -m bytewax.run` starts this), recovery store on, JSON by orjson."""

from __future__ import annotations

import os
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow

BOOTSTRAP, SOURCE, TARGET, WORK = os.environ["BENCH_ARGUMENTS"].split(" ")


def count(seen: int | None, value: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    now = (seen or 0) + 1
    return now, {"key": value["key"], "count": now}


def message(keyed: tuple[str, dict[str, Any]]) -> KafkaSinkMessage[bytes, bytes]:
    return KafkaSinkMessage(keyed[0].encode(), orjson.dumps(keyed[1]))


flow = Dataflow("bench")
source = op.input("in", flow, KafkaSource([BOOTSTRAP], [SOURCE], batch_size=5_000))
values = op.map("parse", source, lambda record: orjson.loads(record.value))
if WORK == "count":
    keyed = op.stateful_map("count", op.key_on("key", values, lambda value: value["key"]), count)
else:
    keyed = op.map("echo", values, lambda value: (value["key"], {"key": value["key"], "count": value["n"]}))
kafka.output("out", op.map("message", keyed, message), brokers=[BOOTSTRAP], topic=TARGET)
