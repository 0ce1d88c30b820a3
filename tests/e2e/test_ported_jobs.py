"""Jobs as teams bring them from Samza, with their own properties: every number that they send is known beforehand.

A fourth, stateful and moved between the real Samza and grete, is in `tests/interop/test_moved_state.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import grete
from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.job import JobUnderTest
from grete.testing.waiting import patient

SERDES = """
job.factory.class=org.apache.samza.job.yarn.YarnJobFactory
job.default.system=kafka
systems.kafka.samza.factory=org.apache.samza.system.kafka.KafkaSystemFactory
systems.kafka.consumer.zookeeper.connect=localhost:2181/
systems.kafka.producer.bootstrap.servers=localhost:9092
serializers.registry.json.class=org.apache.samza.serializers.JsonSerdeFactory
serializers.registry.string.class=org.apache.samza.serializers.StringSerdeFactory
serializers.registry.integer.class=org.apache.samza.serializers.IntegerSerdeFactory
"""


# --- hello-samza's statistics of Wikipedia ---

WIKIPEDIA = (
    SERDES
    + """
job.name=wikipedia-stats
task.inputs=kafka.wikipedia-edits
task.outputs=kafka.wikipedia-stats
task.window.ms=10000
systems.kafka.samza.msg.serde=json
systems.kafka.default.stream.samza.offset.default=oldest
stores.wikipedia-stats.factory=org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory
stores.wikipedia-stats.changelog=kafka.wikipedia-stats-changelog
stores.wikipedia-stats.key.serde=string
stores.wikipedia-stats.msg.serde=integer
"""
)


class WikipediaStats(grete.StreamTask):
    """Counts of a window in fields, as in hello-samza; those of all time in the store."""

    def init(self, context: grete.TaskContext) -> None:
        self.store = context.store("wikipedia-stats")
        self._begin()

    def _begin(self) -> None:
        self.edits, self.byte_diff, self.titles = 0, 0, set[str]()
        self.flags: Counter[str] = Counter()

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        edit = envelope.message
        self.store.put("count-edits-all-time", (self.store.get("count-edits-all-time") or 0) + 1)
        self.edits += 1
        self.byte_diff += edit["diff-bytes"]
        self.titles.add(edit["title"])
        self.flags.update(flag for flag, is_set in edit["flags"].items() if is_set)

    def window(self, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator) -> None:
        collector.send(
            "kafka.wikipedia-stats",
            {
                "edits": self.edits,
                "edits-all-time": self.store.get("count-edits-all-time") or 0,
                "bytes-added": self.byte_diff,
                "unique-titles": len(self.titles),
                **self.flags,
            },
        )
        self._begin()


def edit(number: int) -> dict[str, Any]:
    flags = {"is-new": number % 3 == 0, "is-minor": number % 2 == 0}
    return {"title": f"title {number % 4}", "diff-bytes": number, "flags": flags}


def test_the_statistics_of_wikipedia_count_each_edit_in_one_window_and_for_ever(tmp_path: Path) -> None:
    properties = tmp_path / "wikipedia-stats.properties"
    properties.write_text(WIKIPEDIA)
    with JobUnderTest(WikipediaStats, config_files=[properties]) as job:

        def window(first: int, end: int) -> dict[str, Any]:
            """Edits in two batches, then the window that counts them."""
            for half in (range(first, (first + end) // 2), range((first + end) // 2, end)):
                for number in half:
                    job.send("kafka.wikipedia-edits", edit(number))
                job.run()
            job.advance(10)
            job.run()
            sent: dict[str, Any] = job.messages("kafka.wikipedia-stats")[-1]
            return sent

        assert window(0, 10) == {
            "edits": 10,
            "edits-all-time": 10,
            "bytes-added": 45,
            "unique-titles": 4,
            "is-new": 4,
            "is-minor": 5,
        }
        assert window(10, 12)["edits"] == 2
        job.restart(lose_stores=True)  # between two windows: nothing is in the fields
        assert window(12, 15) == {
            "edits": 3,
            "edits-all-time": 15,
            "bytes-added": 39,
            "unique-titles": 3,
            "is-new": 1,
            "is-minor": 2,
        }
        job.send("kafka.wikipedia-edits", edit(15))
        job.run()
        job.restart()  # amid a window: what was in fields is gone, as in Samza, and nothing of the store
        found = window(16, 18)
        assert (found["edits"], found["edits-all-time"]) == (2, 18)
        assert len(job.messages("kafka.wikipedia-stats")) == 4


# --- page views by stream ids, with a bootstrap stream ---

PAGE_VIEWS = (
    SERDES
    + """
job.name=page-views
task.inputs=kafka.tracking.page-views,kafka.members-v2
task.outputs=kafka.page-views-by-country
streams.page-views.samza.system=kafka
streams.page-views.samza.physical.name=tracking.page-views
streams.page-views.samza.key.serde=string
streams.page-views.samza.msg.serde=json
streams.page-views.samza.offset.default=oldest
streams.page-views.samza.partitions=2
streams.members.samza.physical.name=members-v2
streams.members.samza.key.serde=string
streams.members.samza.msg.serde=string
streams.members.samza.bootstrap=true
streams.members.samza.reset.offset=true
streams.members.samza.offset.default=oldest
streams.members.samza.partitions=2
streams.by-country.samza.physical.name=page-views-by-country
streams.by-country.samza.key.serde=string
streams.by-country.samza.msg.serde=json
stores.members.factory=org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory
stores.members.key.serde=string
stores.members.msg.serde=string
stores.views.factory=org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory
stores.views.changelog=kafka.page-views-store
stores.views.key.serde=string
stores.views.msg.serde=integer
"""
)


class PageViews(grete.StreamTask):
    """Counts page views by the country of the member, which the bootstrap stream says."""

    def init(self, context: grete.TaskContext) -> None:
        self.members, self.views = context.store("members"), context.store("views")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.system_stream_partition.stream == "members-v2":
            self.members.put(envelope.key, envelope.message)
            return
        country = self.members.get(envelope.key) or "unknown"
        count = (self.views.get(country) or 0) + 1
        self.views.put(country, count)
        collector.send("kafka.page-views-by-country", {"page": envelope.message, "count": count}, key=country)


def test_page_views_find_their_members_and_are_counted_once_whatever_ends_the_job(tmp_path: Path) -> None:
    properties = tmp_path / "page-views.properties"
    properties.write_text(PAGE_VIEWS)
    countries = ("at", "cz", "de")
    with closing(JobUnderTest(PageViews, config_files=[properties])) as job:

        def view(first: int, end: int) -> None:
            for number in range(first, end):
                job.send("kafka.tracking.page-views", number, key=f"m{number % 6}", partition=number % 2)

        view(0, 60)  # before the job ran, and before its members are sent
        for number in range(6):
            job.send("kafka.members-v2", countries[number // 2], key=f"m{number}", partition=number % 2)
        job.start()
        job.run()
        view(60, 120)
        job.run_batch(commit=False)
        job.restart(lose_stores=True)
        job.run()
        view(120, 180)
        job.restart()
        job.run()

        sent = job.outputs("kafka.page-views-by-country")
        assert {one.message["page"]: one.key for one in sent} == {
            number: countries[number % 6 // 2] for number in range(180)
        }
        assert len(sent) == 180
        for task in ("Partition 0", "Partition 1"):
            assert job.store("views", task) == dict.fromkeys(countries, 30)
        by_task = Counter((one.key, one.message["count"]) for one in sent)
        assert by_task == {(country, count): 2 for country in countries for count in range(1, 31)}


# --- orders of every region by a regex, rules to every task, customers first ---

ALERTS = """
import grete

class Alerts(grete.StreamTask):
    def init(self, context):
        self.customers, self.totals, self.rules = context.store("customers"), context.store("totals"), {}

    def process(self, envelope, collector, coordinator):
        stream = envelope.system_stream_partition.stream
        if stream == "customers":
            self.customers.put(envelope.key, envelope.message)
        elif stream == "rules":
            self.rules[envelope.key] = envelope.message
        else:
            total = (self.totals.get(envelope.key) or 0) + envelope.message
            self.totals.put(envelope.key, total)
            alert = {"from": stream, "customer": self.customers.get(envelope.key), "limit": self.rules["limit"]}
            collector.send("local.alerts", {**alert, "order": envelope.message, "total": total})
"""
ALERTS_PROPERTIES = """
job.name=order-alerts
job.application.path=.
job.container.count=2
task.class=alerts:Alerts
task.inputs=local.customers
task.broadcast.inputs=local.rules#1
task.outputs=local.alerts
job.config.rewriters=orders
job.config.rewriter.orders.class=org.apache.samza.config.RegExTopicGenerator
job.config.rewriter.orders.regex=orders-[a-z]+
job.config.rewriter.orders.system=local
systems.local.samza.factory=local
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
systems.local.samza.offset.default=oldest
systems.local.streams.customers.samza.bootstrap=true
systems.local.streams.customers.samza.reset.offset=true
systems.local.streams.rules.samza.bootstrap=true
systems.local.streams.rules.samza.reset.offset=true
stores.customers.factory=org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory
stores.totals.factory=org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory
"""
REGIONS, CUSTOMERS = ("asia", "europe"), 8


class Orders:
    """Streams of the job: each customer has a partition in all of them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.sent: list[tuple[str, str, int]] = []
        (home / "alerts.py").write_text(ALERTS)
        (home / "alerts.properties").write_text(ALERTS_PROPERTIES)
        with closing(LocalSystem(home / "local", SystemClock())) as local:
            for stream in ("customers", "rules", *(f"orders-{region}" for region in REGIONS)):
                local.ensure_stream(StreamSpec(stream, 4))
            local.append("customers", (_message(f"c{n}", f"name {n}", n) for n in range(CUSTOMERS)))
            local.append("rules", (_message("limit", limit, limit) for limit in range(4)))

    def send(self, first: int, end: int) -> None:
        with closing(LocalSystem(self._home / "local", SystemClock())) as local:
            for number in range(first, end):
                stream, customer = f"orders-{REGIONS[number % 2]}", number // 2 % CUSTOMERS
                local.append(stream, [_message(f"c{customer}", number, customer)])
                self.sent.append((stream, f"c{customer}", number))

    def run(self) -> None:
        command = [sys.executable, "-m", "grete.testing.sparkless", "--until-drained"]
        ran = subprocess.run(
            [*command, "--config", "alerts.properties"],
            cwd=self._home,
            env={**os.environ, "GRETE_HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=patient(100),
        )
        assert ran.returncode == 0, ran.stderr

    def alerts(self) -> list[dict[str, Any]]:
        with closing(LocalSystem(self._home / "local", SystemClock())) as local:
            return [
                json.loads(value)
                for partition in range(local.partition_count("alerts"))
                for _, batch in local.read("alerts", partition, 0)
                for value in batch.column(1).to_pylist()
            ]


def _message(key: str, value: object, partition: int) -> Message:
    return Message(key.encode(), json.dumps(value).encode(), 0, partition % 4)


@pytest.mark.timeout(240)
def test_every_order_sees_its_customer_and_the_rule_and_is_counted_once(home: Path) -> None:
    orders = Orders(home)
    orders.send(0, 40)
    orders.run()
    orders.send(40, 80)
    orders.run()
    found = {alert["order"]: alert for alert in orders.alerts()}
    assert len(orders.alerts()) == len(orders.sent)
    totals = Counter[str]()
    for stream, customer, number in orders.sent:
        totals[customer] += number
        assert {**found[number], "total": 0} == {
            "from": stream,
            "customer": f"name {customer[1:]}",
            "limit": 1,  # of the partition that is listed, and of no other
            "order": number,
            "total": 0,
        }
    highest = {
        customer: max(found[n]["total"] for _, c, n in orders.sent if c == customer) for customer in totals
    }
    assert highest == totals
