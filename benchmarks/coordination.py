"""Operations a second of leader election and of cells on each service, beside the service's smallest write by hand.

    python -m benchmarks.coordination [--only sqlite zookeeper] [--seconds 3] [--json FILE]

One client, one call after the other. `by hand` is what the service's own client takes to make one durable change: a
row of SQLite in a transaction, a node of ZooKeeper, a Lease of Kubernetes, the renewal of a blob's lease, a record of
Kafka in a transaction. `ratio` is the rate of a renewal to that. Servers are started for the run. `campaign` includes
the release.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import orjson
from confluent_kafka.admin import AdminClient, NewTopic

from grete.azure.blobs import Blobs
from grete.azure.storage import AzureStorage
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import account_of
from grete.coordination.base import Coordination
from grete.coordination.factory import open_coordination
from grete.coordination.kubernetes.access import of_kubeconfig
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordination.zookeeper.library import KazooClient
from grete.kafka.library import Producer
from grete_workbench.failover.services import BACK_ENDS, settings_of

TTL_S = 15.0
SCOPE = "job/benchmark"
Write = Callable[[], object]


@contextmanager
def _sqlite(_: dict[str, str], folder: Path) -> Iterator[Write]:
    with closing(apsw.Connection(str(folder / "by-hand.db"))) as connection:
        for setup in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE t (n)"):
            connection.execute(setup).fetchall()
        connection.execute("INSERT INTO t VALUES (0)").fetchall()
        yield lambda: connection.execute("UPDATE t SET n = n + 1").fetchall()


@contextmanager
def _zookeeper(settings: dict[str, str], _: Path) -> Iterator[Write]:
    client = KazooClient(settings["job.coordinator.zk.connect"])
    client.start()
    try:
        client.create("/by-hand", b"0")
        yield lambda: client.set("/by-hand", b"1")
    finally:
        client.stop()
        client.close()


@contextmanager
def _kubernetes(settings: dict[str, str], _: Path) -> Iterator[Write]:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    kubeconfig = Path(settings["job.coordinator.kubernetes.kubeconfig"])
    with closing(ApiServer(of_kubeconfig([kubeconfig]))) as server:
        made = server.create(path, {"metadata": {"name": "by-hand"}, "spec": {}}, 5)
        assert made is not None, "another run has left it"
        last = [made]

        def write() -> None:
            last[0]["spec"]["holderIdentity"] = uuid.uuid4().hex
            written = server.replace(f"{path}/by-hand", last[0], 5)
            assert written is not None
            last[0] = written

        yield write


@contextmanager
def _azure(settings: dict[str, str], _: Path) -> Iterator[Write]:
    with closing(AzureStorage(account_of(settings["azure.storage.connect"]), timeout_s=5)) as storage:
        lease = str(uuid.uuid4())
        blobs = Blobs(storage, "byhand")
        blobs.write("blob", b"0", etag=None)
        blobs.acquire("blob", lease, 60)
        yield lambda: blobs.renew("blob", lease)


@contextmanager
def _kafka(settings: dict[str, str], _: Path) -> Iterator[Write]:
    bootstrap = settings["systems.kafka.producer.bootstrap.servers"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("by-hand", 1, 1)])["by-hand"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "by-hand", "linger.ms": 0})
    producer.init_transactions(30)

    def write() -> None:
        producer.begin_transaction()
        producer.produce("by-hand", b"1", key=b"k")
        producer.commit_transaction(30)

    yield write


_BY_HAND = {
    "sqlite": _sqlite,
    "zookeeper": _zookeeper,
    "kubernetes": _kubernetes,
    "azure": _azure,
    "kafka": _kafka,
}


def _rate(call: Write, seconds: float) -> dict[str, float]:
    """Calls a second, and how long half of them take at most."""
    for _ in range(3):
        call()
    took: list[float] = []
    until_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < until_s:
        call()
        took.append(time.perf_counter() - began_s)
    return {"per_s": round(len(took) / sum(took), 1), "p50_ms": round(statistics.median(took) * 1000, 3)}


def _operations(coordination: Coordination) -> Iterator[tuple[str, Write]]:
    def campaign() -> None:
        coordination.release(coordination.campaign(f"{SCOPE}-2"))

    yield "campaign", campaign
    led = coordination.campaign(SCOPE)
    yield "renew", lambda: coordination.renew(led)
    yield "look", lambda: coordination.look(SCOPE)
    cells = coordination.cells(SCOPE)
    last = [cells.write("cell", b"0", None)]

    def write() -> None:
        last[0] = cells.write("cell", b"x" * 100, last[0].version)

    yield "cell write", write
    yield "cell read", lambda: cells.read("cell")


def measured(back_end: str, folder: Path, seconds: float) -> dict[str, Any]:
    """The figures of one service."""
    home = folder / "home"
    home.mkdir(parents=True)
    with settings_of(back_end, folder / "server") as settings:
        found: dict[str, Any] = {}
        with _BY_HAND[back_end](settings, folder) as by_hand:
            found["by hand"] = _rate(by_hand, seconds)
            opened = open_coordination(Settings.of(settings), home, SystemClock(), ttl_s=TTL_S)
            with closing(opened) as coordination:
                for name, call in _operations(coordination):
                    found[name] = _rate(call, seconds)
            again = _rate(by_hand, seconds)
        before = found["by hand"]["per_s"]
        found["by hand again"] = again
        found["ratio"] = round(found["renew"]["per_s"] / ((before + again["per_s"]) / 2), 3)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordination")
    parser.add_argument("--only", nargs="+", choices=BACK_ENDS, default=BACK_ENDS)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each operation (3)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "ttl_s": TTL_S,
        "load_before": round(os.getloadavg()[0], 1),
        "back_ends": {},
    }
    with tempfile.TemporaryDirectory(prefix="grete-coordination-") as folder:
        for back_end in options.only:
            found = results["back_ends"][back_end] = measured(
                back_end, Path(folder) / back_end, options.seconds
            )
            rates = ", ".join(
                f"{name} {each['per_s']:,.0f}" for name, each in found.items() if name != "ratio"
            )
            print(f"{back_end:<11} {rates} a second; renew / by hand {found['ratio']:.2f}", flush=True)
    results["load_after"] = round(os.getloadavg()[0], 1)
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
