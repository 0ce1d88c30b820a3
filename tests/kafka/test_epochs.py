"""Epochs beside a topic without records: no lag in tools, found by older versions, and not needed by anybody."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.support.consumer_group import group_lag, group_offsets
from tests.support.older_epochs import OlderEpoch
from tests.support.secure_kafka import SecureCluster

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import Fenced
from grete.kafka.epoch import writer_id
from grete.kafka.epoch_topic import EPOCHS
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.systems.factory import open_system
from grete.systems.kafka.fence import FENCES
from grete.testing.kafka_broker import KafkaCluster

pytestmark = pytest.mark.fault
SCOPE = "job/epochs"
DAY_MS = 86_400_000
ENTRIES = [Entry(b"key", b"value")]

Opened = Callable[..., KafkaKeyedLog]


class LaterClock(SystemClock):
    """So many days later."""

    def __init__(self, days: int) -> None:
        self._later_ms = days * DAY_MS

    def wall_ms(self) -> int:
        return super().wall_ms() + self._later_ms


@pytest.fixture
def name() -> str:
    return f"epochs-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def opened(kafka: KafkaCluster, name: str) -> Iterator[Opened]:
    """Processes of this version that have the log open, each with a clock of its own."""
    settings = KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1)
    with ExitStack() as held:
        yield lambda days=0: held.enter_context(closing(KafkaKeyedLog(name, settings, LaterClock(days))))


@pytest.fixture
def older(kafka: KafkaCluster, name: str) -> OlderEpoch:
    return OlderEpoch(kafka.bootstrap, name, SCOPE)


def fence(epoch: int) -> Fence:
    return Fence(SCOPE, epoch)


def test_tools_show_no_lag_for_the_group_of_an_epoch(kafka: KafkaCluster, name: str, opened: Opened) -> None:
    log = opened()
    log.claim(fence(7))
    for _ in range(3):
        log.append(ENTRIES, fence=fence(7))
    assert group_lag(kafka.bootstrap, writer_id(name, SCOPE)) == {(EPOCHS, 0): 0}


def test_an_epoch_of_an_older_version_is_found_and_each_later_one_is_found_by_it(
    opened: Opened, older: OlderEpoch
) -> None:
    log = opened()
    older.write(5)
    for refused in (fence(4), fence(5)):
        with pytest.raises(Fenced, match="5"):
            log.claim(refused)
    log.append(ENTRIES, fence=fence(5))
    for epoch in (6, 7, 8):
        opened().claim(fence(epoch))
        assert older.read() == epoch
    with pytest.raises(Fenced, match="8"):
        log.append(ENTRIES, fence=fence(5))


def test_versions_that_take_turns_refuse_each_other(opened: Opened, older: OlderEpoch) -> None:
    first = opened()
    first.claim(fence(1))
    assert older.read() is None, "no older version was ever here"
    older.write(2)
    with pytest.raises(Fenced, match="2"):
        first.append(ENTRIES, fence=fence(1))
    second = opened()
    second.claim(fence(3))
    assert older.read() == 3
    older.write(4)
    with pytest.raises(Fenced, match="4"):
        second.append(ENTRIES, fence=fence(3))


def test_an_older_version_that_writes_a_lower_epoch_finds_the_higher_one_afterwards(
    opened: Opened, older: OlderEpoch
) -> None:
    """As when it was elected long before, and where no older version had been."""
    log = opened()
    log.append(ENTRIES, fence=fence(8))
    older.write(7)
    log.append(ENTRIES, fence=fence(8))
    assert older.read() == 8


def test_a_fence_that_is_kept_is_written_again_where_an_older_version_is_behind(
    opened: Opened, older: OlderEpoch
) -> None:
    log = opened()
    log.raise_fence(fence(8))
    older.write(7)
    log.raise_fence(fence(8))
    assert older.read() == 8


def test_the_fence_of_a_container_of_an_older_version_counts_and_its_successors_are_found_by_it(
    kafka: KafkaCluster, name: str, tmp_path: Path
) -> None:
    scope = f"container/{name}/0"
    config = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": kafka.bootstrap,
        "systems.kafka.default.stream.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
    }
    with closing(open_system(Settings.of(config), "kafka", tmp_path, SystemClock())) as system:
        system.raise_fence([Fence(f"{scope}/other", 1)])  # makes the topic
        older = OlderEpoch(kafka.bootstrap, FENCES, scope)
        older.write(5)
        with pytest.raises(Fenced, match="5"):
            system.raise_fence([Fence(scope, 4)])
        system.raise_fence([Fence(scope, 6)])
        system.raise_fence([Fence(scope, 7)])
        assert older.read() == 7


def test_a_week_after_an_older_version_wrote_last_brokers_may_forget_what_it_reads(
    kafka: KafkaCluster, name: str, opened: Opened, older: OlderEpoch
) -> None:
    opened()
    older.write(1)
    opened().claim(fence(2))
    opened(6).claim(fence(3))
    assert older.read() == 3
    opened(8).claim(fence(4))
    assert older.read() == 3, "it is not written any more"
    with pytest.raises(Fenced, match="4"):
        opened(8).claim(fence(4))
    older.write(5)
    opened(8).claim(fence(6))
    assert older.read() == 6, "an older version has come back"
    assert set(group_offsets(kafka.bootstrap, writer_id(name, SCOPE))) == {(EPOCHS, 0), (name, 0)}


def test_who_may_not_use_the_topic_keeps_epochs_in_the_log_and_is_found_by_who_may(
    secure_kafka: SecureCluster, name: str, rights: Rights
) -> None:
    group = writer_id(name, SCOPE)
    everything = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS)
    rights.allow(ResourceType.TOPIC, name, *everything)
    rights.allow(ResourceType.GROUP, "grete-", AclOperation.READ)
    rights.allow(ResourceType.TRANSACTIONAL_ID, "grete-", AclOperation.WRITE)
    with closing(log_of_cyd(secure_kafka, name)) as log:
        log.claim(fence(1))
        log.append(ENTRIES, fence=fence(1))
        assert group_offsets(secure_kafka.bootstrap, group) == {(name, 0): 1}
        with closing(log_of_ann(secure_kafka, name)) as other:
            other.claim(fence(2))
        with pytest.raises(Fenced, match="2"):
            log.append(ENTRIES, fence=fence(1))

    rights.allow(ResourceType.TOPIC, EPOCHS, AclOperation.DESCRIBE)
    with closing(log_of_cyd(secure_kafka, name)) as log:
        with pytest.raises(Fenced, match="2"):
            log.claim(fence(2))
        log.claim(fence(3))
        assert group_offsets(secure_kafka.bootstrap, group)[(name, 0)] == 3, "to look is not to write"

    rights.allow(ResourceType.TOPIC, EPOCHS, AclOperation.READ)
    with closing(log_of_cyd(secure_kafka, f"{name}-new")) as log:
        log.claim(fence(1))
        assert set(group_offsets(secure_kafka.bootstrap, writer_id(f"{name}-new", SCOPE))) == {(EPOCHS, 0)}


class Rights:
    """What cyd may do, beside nothing."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def allow(self, kind: ResourceType, prefix: str, *operations: AclOperation) -> None:
        """With everything of the kind whose name begins so."""
        prefixed = ResourcePatternType.PREFIXED
        made = [
            AclBinding(kind, prefix, prefixed, "User:cyd", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for done in self._admin.create_acls(made).values():
            done.result(30)

    def withdraw(self) -> None:
        """All of them."""
        of_cyd = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:cyd",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        self._admin.delete_acls([of_cyd])[of_cyd].result(30)


@pytest.fixture
def rights(secure_kafka: SecureCluster) -> Iterator[Rights]:
    granted = Rights(secure_kafka.bootstrap)
    yield granted
    granted.withdraw()


def log_of_cyd(secure: SecureCluster, name: str) -> KafkaKeyedLog:
    login = {
        "bootstrap.servers": secure.secure_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "cyd",
        "sasl.password": secure.login.users["cyd"],
        "ssl.ca.location": str(secure.login.authority.ca_pem),
    }
    return KafkaKeyedLog(name, KafkaLogSettings(login, replication_factor=1), SystemClock())


def log_of_ann(secure: SecureCluster, name: str) -> KafkaKeyedLog:
    """As one who may everything."""
    settings = KafkaLogSettings({"bootstrap.servers": secure.bootstrap}, replication_factor=1)
    return KafkaKeyedLog(name, settings, SystemClock())
