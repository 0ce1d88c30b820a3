"""Clients connect to every broker at once where there are few: the first answer takes 3 ms then, not 15."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.kafka import client
from grete.kafka.client import KafkaConnection


class Clients:
    """Notes the settings of each that is made; a cluster of so many brokers answers."""

    def __init__(self, brokers: int) -> None:
        self._brokers = brokers
        self.made: list[dict[str, Any]] = []

    def __call__(self, settings: dict[str, Any]) -> Clients:
        self.made.append(settings)
        return self

    def list_topics(self, topic: str | None, *, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(brokers=dict.fromkeys(range(self._brokers)))

    @property
    def waits(self) -> list[bool]:
        """Of each, whether it connects only to whom it asks."""
        return [settings["enable.sparse.connections"] for settings in self.made]


def connection(servers: str) -> KafkaConnection:
    return KafkaConnection({"bootstrap.servers": servers}, 5.0, SystemClock())


@pytest.mark.parametrize(("brokers", "wait"), [(1, False), (6, False), (7, True), (100, True)])
def test_clients_connect_to_all_brokers_where_those_are_known_to_be_few(
    monkeypatch: pytest.MonkeyPatch, brokers: int, wait: bool
) -> None:
    clients, servers = Clients(brokers), f"a-cluster-of-{brokers}:9092"
    monkeypatch.setattr(client, "AdminClient", clients)
    monkeypatch.setattr(client, "Consumer", clients)
    first = connection(servers)
    assert clients.waits == [True], "it is not known yet how many there are"
    first.await_login("a test")
    first.new_consumer("a test", {})
    connection(servers)
    assert clients.waits == [True, wait, wait]


def test_another_cluster_is_not_taken_for_the_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(1)
    monkeypatch.setattr(client, "AdminClient", clients)
    connection("a-small-one:9092").await_login("a test")
    connection("another:9092")
    assert clients.waits == [True, True]
