"""What happens to leaders and to the services that elect them, the same on every back end.

Three processes contend, with clocks that are a day apart, and write into one log under their epochs. The log's order
is the history that is checked: no effect of an epoch comes after one of a higher epoch, and each epoch is one's own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest
from confluent_kafka.admin import AdminClient
from tests.fault.contender import REFUSED, SCOPE, open_log

from grete.azure.blobs import BlobChanged, Blobs
from grete.azure.storage import AzureStorage
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import account_of
from grete.coordination.azure import blob_name
from grete.coordination.base import Coordination, Leadership
from grete.coordination.factory import open_coordination
from grete.coordination.kafka import topic_name
from grete.coordination.kubernetes.lease import lease_name
from grete.coordination.zookeeper.library import KazooClient
from grete.coordination.zookeeper.paths import LEADERSHIPS, node_name
from grete.errors import HeldByOther
from grete.keyed_log.base import KeyedLog
from grete.keyed_log.sqlite_coordinator_log import coordinator_file
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.azurite import Azurite
from grete_workbench.failover.services import job_settings
from grete_workbench.kube_apiserver import KubeApiServer
from grete_workbench.zookeeper_server import ZooKeeperCluster

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
pytestmark = [pytest.mark.fault, pytest.mark.timeout(2400 if NIGHTLY else 300)]
DAY_S = 86_400.0
CONTENDERS = Path(__file__).with_name("contender.py")


class Service(ABC):
    """A service that elects, and the harm that is done to it. `home` is that of all contenders."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        self.home = home
        self.settings = settings

    @abstractmethod
    def forget(self) -> None:
        """Delete the leadership by hand."""

    @abstractmethod
    def fail(self) -> None:
        """No call is answered from now on, until `come_back`."""

    @abstractmethod
    def come_back(self) -> None:
        """All is as before."""


class SqliteFile(Service):
    """A file that another process keeps locked."""

    _connection: apsw.Connection | None = None

    def _opened(self) -> apsw.Connection:
        connection = apsw.Connection(str(coordinator_file(Settings.of(self.settings), self.home)))
        connection.set_busy_timeout(10_000)
        return connection

    def forget(self) -> None:
        with closing(self._opened()) as connection:
            connection.execute("DELETE FROM leaderships WHERE scope = ?", (SCOPE,))

    def fail(self) -> None:
        self._connection = self._opened()
        self._connection.execute("BEGIN EXCLUSIVE")

    def come_back(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class AzureAccount(Service):
    """Azurite, which stands still: killed, it loses what was written last."""

    def __init__(self, home: Path, server: Azurite) -> None:
        own = f"faults{random.getrandbits(32):08x}"
        places = {"azure.storage.container": own, "azure.storage.table": own}
        super().__init__(home, {**job_settings("azure", server.bootstrap), **places})
        self._server = server
        self._container = own

    def forget(self) -> None:
        with closing(AzureStorage(account_of(self._server.bootstrap), timeout_s=5)) as storage:
            blobs = Blobs(storage, self._container)
            while found := blobs.read(blob_name(SCOPE)):  # the leader may write in between
                blobs.break_lease(blob_name(SCOPE))
                with suppress(BlobChanged):
                    blobs.delete(blob_name(SCOPE), etag=found.etag)
                    return

    def fail(self) -> None:
        self._server.pause()

    def come_back(self) -> None:
        self._server.ensure_running()


class KafkaBroker(Service):
    """One broker that is killed."""

    def __init__(self, home: Path, cluster: KafkaCluster) -> None:
        super().__init__(home, job_settings("kafka", cluster.bootstrap))
        self._cluster = cluster

    def forget(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        topic = topic_name(SCOPE, "__grete_leadership_")
        admin.delete_topics([topic])[topic].result(60)

    def fail(self) -> None:
        self._cluster.kill()

    def come_back(self) -> None:
        self._cluster.ensure_running()


class ApiServer(Service):
    """One API server of Kubernetes that is killed."""

    def __init__(self, home: Path, server: KubeApiServer) -> None:
        prefix = f"faults-{random.getrandbits(32):08x}"
        lease = {"job.coordinator.kubernetes.lease.prefix": prefix}
        super().__init__(home, {**job_settings("kubernetes", server.bootstrap), **lease})
        self._server = server
        self._lease = lease_name(prefix, SCOPE)

    def forget(self) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        self._server.call("DELETE", f"{leases}/{self._lease}")

    def fail(self) -> None:
        self._server.kill()

    def come_back(self) -> None:
        self._server.ensure_running()


class ZooKeeperEnsemble(Service):
    """Three servers that stand still."""

    def __init__(self, home: Path, ensemble: ZooKeeperCluster) -> None:
        self._path = f"/faults-{random.getrandbits(32):08x}"
        super().__init__(home, job_settings("zookeeper", ensemble.bootstrap + self._path))
        self._ensemble = ensemble

    def forget(self) -> None:
        client = KazooClient(self._ensemble.bootstrap)
        client.start()
        try:
            client.delete(f"{self._path}{LEADERSHIPS}/{node_name(SCOPE)}", recursive=True)
        finally:
            client.stop()
            client.close()

    def fail(self) -> None:
        for node in self._ensemble.nodes:
            self._ensemble.pause(node.number)

    def come_back(self) -> None:
        self._ensemble.ensure_running()


@dataclass(frozen=True, slots=True)
class Effect:
    """A record that a leader has written."""

    epoch: int
    pid: int
    incarnation: str


class History:
    """Effects in the order of the log, as far as it was read."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._read = -1
        self.effects: list[Effect] = []

    def look(self) -> int:
        """Take in what was written since; returns how many there are."""
        for record in self._log.read(self._read):
            self._read = record.offset
            assert record.epoch is not None
            assert record.value is not None
            self.effects.append(Effect(record.epoch, **json.loads(record.value)))
        return len(self.effects)

    def leader(self) -> int:
        """The process that has written last."""
        self.look()
        return self.effects[-1].pid

    def epoch(self) -> int:
        self.look()
        return self.effects[-1].epoch

    def check(self) -> None:
        """No effect under an epoch that was over, and none of two who believed to have the same one."""
        self.look()
        epochs = [effect.epoch for effect in self.effects]
        stale = [later for before, later in itertools.pairwise(epochs) if later < before]
        assert stale == []
        owners = {(effect.epoch, effect.incarnation) for effect in self.effects}
        assert len(owners) == len(set(epochs))


class Contest:
    """Three processes that contend on a service, and what becomes of them."""

    def __init__(self, service: Service, ttl_s: float, history: History, stack: ExitStack) -> None:
        self._service = service
        self._ttl_s = ttl_s
        self.history = history
        self._stack = stack
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        """Those that have not been killed."""
        self._numbers = itertools.count()
        for ahead_s in (DAY_S, 0.0, -DAY_S):
            self._start(ahead_s)
        self._goes_on("the first leader")

    def _start(self, ahead_s: float) -> None:
        asked = {
            "settings": self._service.settings,
            "home": str(self._service.home),
            "ttl_s": self._ttl_s,
            "ahead_s": ahead_s,
        }
        log = self._stack.enter_context((self._service.home / f"log-{next(self._numbers)}").open("wb"))
        process = subprocess.Popen([sys.executable, str(CONTENDERS), json.dumps(asked)], stderr=log)
        self._processes[process.pid] = process
        self._stack.callback(self._end, process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def _goes_on(self, after: str, epoch: int = 0) -> None:
        """Effects come in, under an epoch above the one that is given."""
        before = self.history.look()

        def has_gone_on() -> bool:
            return self.history.look() > before and self.history.epoch() > epoch

        eventually(has_gone_on, f"a leader after: {after}", within_s=60, context=self._report)

    def _report(self) -> str:
        logs = self._logs()[-6_000:]
        alive = [pid for pid, process in self._processes.items() if process.poll() is None]
        return f"{len(self.history.effects)} effects, processes {alive}\n{logs}"

    def _logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self._service.home.glob("log-*")))

    def pause(self, ttls: float) -> None:
        """The leader stands still; it is succeeded if that is longer than a TTL."""
        leader, epoch = self._stop_leader(), self.history.epoch()
        try:
            if ttls >= 2:
                self._goes_on("a pause", epoch)
            time.sleep(ttls * self._ttl_s)
        finally:
            os.kill(leader, signal.SIGCONT)
        if ttls >= 2:
            eventually(lambda: REFUSED in self._logs(), "a write is refused", context=self._report)
        self._goes_on("its end")

    def _stop_leader(self) -> int:
        """Its process; on a busy machine another one may lead before the first has stopped."""
        asked: set[tuple[int, int]] = set()
        stopped: list[int] = []

        def is_stopped() -> bool:
            stopped[:] = [pid for pid in self._processes if _stands_still(pid)]
            term = self.history.leader(), self.history.epoch()
            if not stopped and term not in asked:  # asked twice it would stop again after it went on
                asked.add(term)
                os.kill(term[0], signal.SIGUSR1)
            return bool(stopped)

        eventually(is_stopped, "the leader stands still", context=self._report)
        return stopped[0]

    def kill(self) -> None:
        """The leader dies."""
        leader, epoch = self.history.leader(), self.history.epoch()
        self._end(self._processes.pop(leader))
        self._goes_on("a death", epoch)
        self._start(0.0)

    def forget(self) -> None:
        """The leadership is deleted by hand."""
        epoch = self.history.epoch()
        self._service.forget()
        self._goes_on("a deletion", epoch)

    def fail(self, ttls: float) -> None:
        """The service is away, and comes back."""
        self._service.fail()
        try:
            time.sleep(ttls * self._ttl_s)
        finally:
            self._service.come_back()
        self._goes_on("an outage")


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class CoordinationFaults:
    """The faults, on one back end: `service` gives a new home, and a server that nobody else uses meanwhile."""

    TTL_S = 3.0
    CROWD = 50
    OUTAGE_TTLS: float = 1.5
    """How long the service is away; by night a minute, on each of them."""

    def test_no_fault_lets_a_leader_write_that_was_succeeded(self, service: Service) -> None:
        """Paused for less and for more than its lease, forgotten, without its service, killed."""
        longest, outage = (5.0, 60 / self.TTL_S) if NIGHTLY else (2.0, self.OUTAGE_TTLS)
        with ExitStack() as stack:
            history = History(stack.enter_context(closing(open_log(service.home))))
            contest = Contest(service, self.TTL_S, history, stack)
            faults: list[Callable[[], None]] = [
                lambda: contest.pause(0.5),
                lambda: contest.pause(longest),
                contest.forget,
                lambda: contest.fail(outage),
                contest.kill,
            ]
            for number in range(3 if NIGHTLY else 1):
                random.Random(number).shuffle(faults)
                for fault in faults:
                    fault()
            history.check()

    def test_of_fifty_who_start_at_once_one_leads(self, service: Service) -> None:
        settings = Settings.of(service.settings)
        won: list[Leadership] = []
        refused: list[HeldByOther] = []
        with ExitStack() as stack:
            crowd = []
            for _ in range(self.CROWD):
                one = open_coordination(settings, service.home, SystemClock(), ttl_s=min(patient(30.0), 60.0))
                stack.callback(one.close)
                crowd.append(one)
            start = threading.Barrier(self.CROWD)

            def campaign(own: Coordination) -> None:
                start.wait()
                try:
                    won.append(own.campaign("job/crowd-1"))
                except HeldByOther as error:
                    refused.append(error)

            threads = [threading.Thread(target=campaign, args=(own,)) for own in crowd]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (len(won), len(refused)) == (1, self.CROWD - 1)
            assert crowd[0].leading_epoch("job/crowd-1") == won[0].epoch


@pytest.fixture
def shared_home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


class TestOnSqlite(CoordinationFaults):
    OUTAGE_TTLS = 4

    @pytest.fixture
    def service(self, shared_home: Path) -> Service:
        return SqliteFile(shared_home, {})


@pytest.mark.nightly  # a lease is 15 s there
class TestOnAzure(CoordinationFaults):
    TTL_S = 15.0

    @pytest.fixture
    def service(self, shared_home: Path, azurite: Azurite) -> Iterator[Service]:
        yield AzureAccount(shared_home, azurite)
        azurite.ensure_running()


class TestOnKafka(CoordinationFaults):
    @pytest.fixture
    def service(self, shared_home: Path, cluster: KafkaCluster) -> Service:
        return KafkaBroker(shared_home, cluster)


class TestOnKubernetes(CoordinationFaults):
    @pytest.fixture
    def service(self, shared_home: Path, kubernetes: KubeApiServer) -> Iterator[Service]:
        yield ApiServer(shared_home, kubernetes)
        kubernetes.ensure_running()


class TestOnZooKeeper(CoordinationFaults):
    OUTAGE_TTLS = 4

    @pytest.fixture
    def service(self, shared_home: Path, zookeepers: ZooKeeperCluster) -> Service:
        return ZooKeeperEnsemble(shared_home, zookeepers)
