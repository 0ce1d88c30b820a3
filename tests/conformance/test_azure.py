"""The contracts of coordination and of checkpoint stores in Azure Storage, on a server whose clock the tests move."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.certificates import make_authority

from grete import failpoints
from grete.azure.names import escaped
from grete.azure.storage import AzureStorage
from grete.azure.tables import Table
from grete.checkpoint.azure_rows import ssp_json
from grete.checkpoint.azure_table_store import AzureTableCheckpointStore
from grete.checkpoint.store import CheckpointStore, Offsets, StoreContext, StoredCheckpoint
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import account_of
from grete.coordination.azure import AzureCoordination
from grete.coordination.base import Coordination
from grete.errors import CellChanged, ConfigError, LogError
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.checkpoint_store import CheckpointStoreConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.recipes import RecipesConformance
from grete_workbench.azurite import Azurite, AzuriteClock

TTL_S = 15.0


@pytest.fixture
def clock(azurite: Azurite) -> ManualClock:
    return AzuriteClock(azurite)


@pytest.fixture
def pass_time(clock: ManualClock) -> Callable[[float], None]:
    return clock.advance


@pytest.fixture
def contender(clock: ManualClock, azurite: Azurite) -> Iterator[Callable[[], Coordination]]:
    own = uuid.uuid4().hex[:8]
    account = account_of(azurite.bootstrap)
    with ExitStack() as stack:

        def open_one() -> Coordination:
            opened = AzureCoordination(
                account, clock, ttl_s=TTL_S, container=f"grete-{own}", table=f"grete{own}"
            )
            stack.callback(opened.close)
            return opened

        yield open_one


class TestAzureCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
    """Its `contender` is the module's."""

    TTL_S = TTL_S


@pytest.fixture(scope="module")
def secure_azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A server with a certificate of an authority of its own."""
    authority = make_authority(tmp_path_factory.mktemp("authority"))
    options = {"cert": str(authority.keystore), "pwd": authority.password}
    server = Azurite(tmp_path_factory.mktemp("azurite"), settings=options)
    server.start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("REQUESTS_CA_BUNDLE", str(authority.ca_pem))
        yield server
    server.kill()


@pytest.mark.nightly
class TestAzureCoordinationOverTls(CoordinationConformance, CellsConformance):
    """The same over https."""

    TTL_S = TTL_S

    @pytest.fixture
    def azurite(self, secure_azurite: Azurite) -> Azurite:
        return secure_azurite


def test_five_megabytes_and_five_hundred_members_are_read_as_they_were_written(
    contender: Callable[[], Coordination],
) -> None:
    """Samza cuts off what is too long for its blob, silently (S3-17)."""
    one, two = contender().cells("job/one"), contender().cells("job/one")
    model = bytes(range(256)) * 20_000
    first = one.write("model", model, None)
    assert two.read("model") == first
    with pytest.raises(CellChanged):
        two.write("model", model[1:], None)
    second = two.write("model", model[1:], first.version)
    assert one.read_all("") == {"model": second}
    third = one.write("model", b"small", second.version)
    one.delete("model", third.version)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: one.write(f"members/{number}", b"x", None), range(500)))
    assert len(two.read_all("members")) == 500


def test_of_a_scope_that_was_forgotten_neither_blob_nor_row_is_left(azurite: Azurite) -> None:
    own = f"grete{uuid.uuid4().hex[:8]}"
    account = account_of(azurite.bootstrap)
    with (
        closing(AzureCoordination(account, SystemClock(), ttl_s=TTL_S, container=own, table=own)) as leader,
        closing(AzureStorage(account, timeout_s=5)) as storage,
    ):
        leadership = leader.campaign("job/one")
        leader.cells("job/one").write("large", b"x" * 70_000, None)
        leader.cells("job/one").write("small", b"x", None)
        container = storage.container(own)
        assert len(list(container.list_blob_names())) == 2
        leader.forget(leadership)
        assert list(container.list_blob_names()) == []
        assert Table(storage, own).read_partition(escaped("job/one")) == []


class AzureTable:
    """The table of one job, and Samza's hand on it."""

    def __init__(self, azurite: Azurite, home: Path) -> None:
        self.context = StoreContext(
            JobId(f"my_job-{uuid.uuid4().hex[:8]}"),
            Settings.of({"azure.storage.connect": azurite.bootstrap}),
            home,
            SystemClock(),
        )
        self._storage = AzureStorage(account_of(azurite.bootstrap), timeout_s=5)
        self.table = Table(self._storage, self.context.job.name.replace("_", "").replace("-", ""))

    def open(self) -> CheckpointStore:
        return AzureTableCheckpointStore(self.context)

    def write_as_samza(self, task: TaskName, offsets: Offsets) -> None:
        self.table.transact(
            [
                {"PartitionKey": task, "RowKey": ssp_json(ssp), "Offset": offset}
                for ssp, offset in offsets.items()
            ]
        )

    def damage(self, task: TaskName) -> None:
        self.table.transact([{"PartitionKey": task, "RowKey": '{"system":"local"', "Offset": "45"}])

    def rows(self, task: TaskName) -> dict[str, dict[str, object]]:
        return {row["RowKey"]: dict(row) for row, _ in self.table.read_partition(task)}

    def close(self) -> None:
        self._storage.close()


@pytest.fixture
def back_end(azurite: Azurite, tmp_path: Path) -> Iterator[AzureTable]:
    with closing(AzureTable(azurite, tmp_path)) as made:
        yield made


class TestAzureTableCheckpointStore(CheckpointStoreConformance):
    """Its `back_end` is the module's."""


TASK, SSP = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0)
MANY = {SystemStreamPartition("local", "in", partition): str(partition) for partition in range(250)}
MOVED = {ssp: f"1{offset}" for ssp, offset in MANY.items()}


def test_rows_have_samzas_keys_and_its_offset(back_end: AzureTable) -> None:
    with closing(back_end.open()) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
    [(key, row)] = back_end.rows(TASK).items()
    assert key == '{"system":"local","partition":"0","stream":"in"}'
    assert row["PartitionKey"] == "Partition 0"
    assert row["Offset"] == "5"


def test_a_task_of_more_ssps_than_a_transaction_takes_is_written_and_shrinks(back_end: AzureTable) -> None:
    with closing(back_end.open()) as store:
        store.write({TASK: StoredCheckpoint(MANY, "c1")})
        assert store.read({TASK}) == {TASK: StoredCheckpoint(MANY, "c1")}
        store.write({TASK: StoredCheckpoint({SSP: "7"}, "c2")})
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "7"}, "c2")}
    assert len(back_end.rows(TASK)) == 1


def test_a_hundred_tasks_are_written_and_read_eight_at_a_time(back_end: AzureTable) -> None:
    written = {
        TaskName(f"Partition {number}"): StoredCheckpoint({SSP: str(number)}, f"c{number}")
        for number in range(100)
    }
    with closing(back_end.open()) as store:
        store.write(written)
        assert store.read(written) == written


def test_a_write_that_was_cut_short_leaves_the_checkpoint_before(
    back_end: AzureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(back_end.open()) as store:
        store.write({TASK: StoredCheckpoint(MANY, "c1")})
        for batch in (1, 2):
            with monkeypatch.context() as patched:
                patched.setattr(failpoints, "_armed", failpoints._parse(f"azure.rows-written:raise:{batch}"))
                with pytest.raises(LogError, match="failpoint"):
                    store.write({TASK: StoredCheckpoint(MOVED, "c2")})
            assert store.read({TASK}) == {TASK: StoredCheckpoint(MANY, "c1")}
        store.write({TASK: StoredCheckpoint(MOVED, "c2")})
        assert store.read({TASK}) == {TASK: StoredCheckpoint(MOVED, "c2")}


def test_the_first_write_that_was_cut_short_is_damage(
    back_end: AzureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(back_end.open()) as store:
        with monkeypatch.context() as patched:
            patched.setattr(failpoints, "_armed", failpoints._parse("azure.rows-written:raise"))
            with pytest.raises(LogError, match="failpoint"):
                store.write({TASK: StoredCheckpoint(MANY, "c1")})
        found = store.read({TASK})[TASK]
        assert found.offsets is None
        assert "100 rows of 1 writes, of which none is whole" in found.problem


def test_an_offset_that_was_changed_by_hand_counts_and_is_no_copy(back_end: AzureTable) -> None:
    with closing(back_end.open()) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
        [row] = back_end.rows(TASK).values()
        back_end.table.transact([{**row, "Offset": "3"}])
        assert store.read({TASK}) == {TASK: StoredCheckpoint({SSP: "3"})}


def test_a_checkpoint_without_offsets_gives_way_to_one_with_and_back(back_end: AzureTable) -> None:
    with closing(back_end.open()) as store:
        for offsets in ({}, {SSP: "5"}, {}, {SSP: "6"}):
            store.write({TASK: StoredCheckpoint(offsets, "c")})
            with closing(back_end.open()) as other:
                assert other.read({TASK}) == {TASK: StoredCheckpoint(offsets, "c")}
        store.delete({TASK})
        assert store.read({TASK}) == {}
        assert store.places({TASK}) == []


def test_names_that_keys_cannot_have_are_kept_apart(back_end: AzureTable) -> None:
    """Samza refuses them."""
    tasks = [
        TaskName(name) for name in ("a/b", "a#b", "a?b", "a\\b", "a=2Fb", "=grete=a=2Fb", "a\tb", "a%2Fb")
    ]
    ssp = SystemStreamPartition("local", "in/of#the?day\\", 3)
    written = {task: StoredCheckpoint({ssp: str(number)}, "c") for number, task in enumerate(tasks)}
    with closing(back_end.open()) as store:
        store.write(written)
        assert store.read(tasks) == written
        with pytest.raises(ConfigError, match=r"too long for the key of a row.*grete\.checkpoint\.log"):
            store.write({TaskName("x" * 600): StoredCheckpoint({SSP: "5"}, "c")})


def test_jobs_whose_tables_samza_gives_one_name_do_not_take_each_others_rows(back_end: AzureTable) -> None:
    """`my_job` and `my-job`, or two ids of one job; a key gives either a table of its own."""
    with closing(back_end.open()) as store:
        store.write({TASK: StoredCheckpoint({SSP: "5"}, "c")})
    job = back_end.context.job
    for other in (JobId(job.name, "2"), JobId(job.name.replace("_", "-"))):
        context = replace(back_end.context, job=other)
        with (
            closing(AzureTableCheckpointStore(context)) as opened,
            pytest.raises(ConfigError, match=r"belongs to job my_job.*task\.checkpoint\.azure\.table"),
        ):
            opened.read({TASK})
    settings = Settings.of({**back_end.context.settings.raw, "task.checkpoint.azure.table": "elsewhere"})
    with closing(AzureTableCheckpointStore(replace(context, settings=settings))) as elsewhere:
        assert elsewhere.read({TASK}) == {}


def test_a_job_whose_name_makes_no_table_is_refused_with_the_way_out(back_end: AzureTable) -> None:
    for name in ("1st", "a-b"):
        with pytest.raises(
            ConfigError, match=r"cannot be the name of a table.*task\.checkpoint\.azure\.table"
        ):
            AzureTableCheckpointStore(replace(back_end.context, job=JobId(name)))
