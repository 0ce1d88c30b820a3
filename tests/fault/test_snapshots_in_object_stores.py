"""Snapshots in object stores and HDFS: Azure's emulator, and by night gateways as S3 and Google's, and a NameNode."""

from __future__ import annotations

import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import urllib3
from azure.storage.blob import BlobServiceClient, ContainerClient
from tests.unit.tasks.test_snapshots import CHANGELOG, CONFIG
from urllib3.exceptions import HTTPError

from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.config.settings.azure import EMULATOR
from grete.errors import ConfigError
from grete.tasks.stores import snapshot_places as module
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.snapshot_places import SnapshotPlace, open_place
from grete.tasks.stores.snapshots import snapshot_copies, snapshots, take
from grete.tasks.stores.warm_copy import take_over
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest
from grete.testing.server_cluster import ServerCluster
from grete.testing.waiting import eventually
from grete_workbench.azurite import Azurite
from grete_workbench.hdfs import HdfsCluster
from grete_workbench.object_stores import KEY, ObjectStore

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]
CHANGES = [(b"key%05d" % n, b"%0400d" % (n * 7919)) for n in range(12_000)]


class Bucket(ABC):
    """A new bucket, looked at and harmed by another way than grete's."""

    server: ServerCluster[Any]
    config: dict[str, str]
    """What a job has in its configuration to take snapshots there, in `of`."""
    secret: str

    @abstractmethod
    def names(self) -> list[str]:
        """Of all objects."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of an object."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Make an object another one."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object."""


class AzureContainer(Bucket):
    """By Azure's own client."""

    secret = EMULATOR["AccountKey"][:10]

    def __init__(self, server: Azurite, container: ContainerClient) -> None:
        self.server = server
        place = f"abfs://{container.container_name}/of"
        self.config = {"azure.storage.connect": "${env:SNAPSHOT_ACCOUNT}", "job.snapshot.dir": place}
        self._container = container

    def names(self) -> list[str]:
        """See Bucket."""
        return [blob.name for blob in self._container.list_blobs()]

    def read(self, name: str) -> bytes:
        """See Bucket."""
        content: bytes = self._container.download_blob(name).readall()
        return content

    def put(self, name: str, content: bytes) -> None:
        """See Bucket."""
        self._container.upload_blob(name, content, overwrite=True)

    def delete(self, name: str) -> None:
        """See Bucket."""
        self._container.delete_blob(name)


class BucketFolder(Bucket):
    """The files behind a gateway."""

    secret = KEY["AWS_SECRET_ACCESS_KEY"]

    def __init__(self, server: ObjectStore) -> None:
        self.server = server
        name = f"snapshots-{uuid.uuid4().hex[:8]}"
        self.folder = server.make_bucket(name)
        self.config = {"job.snapshot.dir": server.address(name, "of")}

    def names(self) -> list[str]:
        """See Bucket."""
        found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())
        return [name for name in found if not name.startswith(".")]

    def read(self, name: str) -> bytes:
        """See Bucket."""
        return (self.folder / name).read_bytes()

    def put(self, name: str, content: bytes) -> None:
        """See Bucket."""
        (self.folder / name).write_bytes(content)

    def delete(self, name: str) -> None:
        """See Bucket."""
        (self.folder / name).unlink()


class HdfsFiles(Bucket):
    """By its REST interface, which follows where it is sent."""

    secret = "nobody is asked for one"  # noqa: S105 - it says so

    def __init__(self, server: HdfsCluster) -> None:
        self.server = server
        name = f"snapshots-{uuid.uuid4().hex[:8]}"
        place = f"127.0.0.1:{server.nodes[0].web_port}"
        self._url = f"http://{place}/webhdfs/v1/{name}"
        self.config = {"job.snapshot.dir": f"webhdfs://grete@127.0.0.1:1,{place}/{name}/of"}

    def ask(self, method: str, name: str, asked: str, content: bytes | None = None) -> bytes:
        """What it answers, or raises with what it says."""
        url = f"{self._url}/{quote(name)}?user.name=grete&op={asked}"
        answer = urllib3.request(
            method, url, body=content, headers={"Content-Type": "application/octet-stream"}
        )
        if answer.status >= 300:
            raise OSError(answer.data.decode())
        return answer.data

    def names(self) -> list[str]:
        """See Bucket."""
        found = []
        folders = [""]
        while folders:
            folder = folders.pop()
            with suppress(OSError):
                for one in json.loads(self.ask("GET", folder, "LISTSTATUS"))["FileStatuses"]["FileStatus"]:
                    within = found if one["type"] == "FILE" else folders
                    within.append(f"{folder}/{one['pathSuffix']}".lstrip("/"))
        return found

    def read(self, name: str) -> bytes:
        """See Bucket."""
        return self.ask("GET", name, "OPEN")

    def put(self, name: str, content: bytes) -> None:
        """See Bucket."""
        self.ask("PUT", name, "CREATE&overwrite=true", content)

    def delete(self, name: str) -> None:
        """See Bucket."""
        self.ask("DELETE", name, "DELETE")


@pytest.fixture(autouse=True)
def _own_client() -> None:
    """A client that has given its store up would do so in other tests."""
    module._in_azure.cache_clear()
    module._by_address.cache_clear()


@pytest.fixture
def config(bucket: Bucket) -> dict[str, str]:
    return {**CONFIG, **bucket.config}


@pytest.fixture
def place(config: dict[str, str]) -> SnapshotPlace:
    return open_place(config["job.snapshot.dir"], Settings.of(config).azure).below("task", "counts")


def settled(file: StoreFile, position: int) -> None:
    file.settle(position, "", lambda start, end: CHANGES[start:end], lambda packed: ())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreFile]:
    file = StoreFile(tmp_path / "counts.db", CHANGELOG)
    settled(file, 10_000)
    yield file
    file.close()


def restored(place: SnapshotPlace, tmp_path: Path) -> int | None:
    path = tmp_path / uuid.uuid4().hex / "counts.db"
    path.parent.mkdir()
    position = take_over(path, snapshot_copies(place, CHANGELOG))
    if position is not None:
        file = StoreFile(path, CHANGELOG)
        assert dict(file.scan(None, None)) == dict(CHANGES[:position])
        file.close()
    return position


class SnapshotsInAnObjectStore:
    """What holds for each."""

    def test_a_store_comes_back_from_a_place_that_names_no_key(
        self, bucket: Bucket, place: SnapshotPlace, store: StoreFile, tmp_path: Path
    ) -> None:
        whole = take(store.path, place, CHANGELOG)
        assert restored(place, tmp_path) == 10_000
        assert take(store.path, place, CHANGELOG) == 0, "nothing has changed"
        for position in (10_010, 10_020, 10_030):
            settled(store, position)
            assert 0 < take(store.path, place, CHANGELOG) < whole
        assert [one.position for one in snapshots(place, CHANGELOG)] == [10_030, 10_020]
        assert restored(place, tmp_path) == 10_030
        assert bucket.secret not in str(place)
        assert str(place).endswith("/of/task/counts")
        place.remove_all()
        assert bucket.names() == []
        place.remove_all()

    @pytest.mark.parametrize("harm", ["flipped", "gone", "manifest"])
    def test_a_damaged_object_is_noticed_and_the_snapshot_before_counts(
        self, harm: str, bucket: Bucket, place: SnapshotPlace, store: StoreFile, tmp_path: Path
    ) -> None:
        take(store.path, place, CHANGELOG)
        settled(store, 10_010)
        take(store.path, place, CHANGELOG)
        newest, before = snapshots(place, CHANGELOG)
        only = next(name for name in newest.blocks if name not in before.blocks)
        block = f"of/task/counts/blocks/{only}"
        match harm:
            case "flipped":
                bucket.put(block, bucket.read(block)[:-1] + b"\xff")
            case "gone":
                bucket.delete(block)
            case "manifest":
                bucket.put(f"of/task/counts/{newest.file}", b"{}")
        assert restored(place, tmp_path) == 10_000
        settled(store, 10_020)
        take(store.path, place, CHANGELOG)
        assert restored(place, tmp_path) == 10_020

    def test_a_task_goes_on_from_an_object_store_and_without_it(
        self, bucket: Bucket, config: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One that is away costs warnings, when a snapshot is due and when a store is lost, and no message."""
        caplog.set_level("INFO")
        with JobUnderTest(CountingTask, config, directory=tmp_path / "job") as job:

            def count(*keys: str) -> None:
                for key in keys:
                    job.send("local.in", 1, key=key)
                job.run()

            count("a", "b", "a")
            job.clock.advance(60)
            count("c")
            eventually(lambda: "snapshot of" in caplog.text, "a snapshot")
            count("a")
            job.restart(lose_stores=True)
            count("a")
            assert "was taken over from the snapshot in " in caplog.text
            assert job.messages("local.out")[-1] == 4
            bucket.server.stop()
            try:
                job.clock.advance(60)
                count("a")
                eventually(lambda: "no snapshot of" in caplog.text, "a warning", within_s=60)
                job.restart(lose_stores=True)
                count("a")
            finally:
                bucket.server.start()
            assert "so a changelog is read instead" in caplog.text
            assert job.messages("local.out")[-1] == 6
        assert bucket.secret not in caplog.text

    def test_one_that_says_nothing_holds_a_task_up_once(
        self,
        bucket: Bucket,
        place: SnapshotPlace,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """However many stores it has; and it is asked again after a while."""
        monkeypatch.setattr(module, "_ANSWER_S", 0.5)
        monkeypatch.setattr(module, "_LET_BE_S", 2.0)
        bucket.server.pause()
        began_s = time.monotonic()
        try:
            assert [snapshot_copies(place, CHANGELOG) for _ in range(50)] == [[]] * 50
        finally:
            bucket.server.resume()
        assert 1.0 <= time.monotonic() - began_s < 2.5
        assert "has not answered within 1 s" in caplog.text
        eventually(lambda: not _refused(place), "it is asked again")

    def test_all_of_a_place_is_removed_though_it_takes_longer_than_an_answer_may(
        self, bucket: Bucket, place: SnapshotPlace, store: StoreFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job that is deleted may have thousands of blocks."""
        take(store.path, place, CHANGELOG)
        monkeypatch.setattr(module, "_ANSWER_S", 1e-6)
        place.remove_all()
        assert bucket.names() == []


def _refused(place: SnapshotPlace) -> bool:
    try:
        place.files()
    except OSError:
        return True
    return False


class TestAzure(SnapshotsInAnObjectStore):
    """Azure's emulator."""

    @pytest.fixture
    def bucket(self, azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
        monkeypatch.setenv("SNAPSHOT_ACCOUNT", azurite.bootstrap)
        with BlobServiceClient.from_connection_string(azurite.bootstrap) as service:
            yield AzureContainer(azurite, service.create_container(f"snapshots-{uuid.uuid4().hex[:8]}"))


class InAGateway(SnapshotsInAnObjectStore):
    """A gateway for each test, since some stop it."""

    speaks: str

    @pytest.fixture
    def bucket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
        for name, value in KEY.items():
            monkeypatch.setenv(name, value)
        server = ObjectStore(tmp_path / "store", settings={"speaks": self.speaks})
        server.start()
        try:
            yield BucketFolder(server)
        finally:
            server.stop()


@pytest.mark.nightly
class TestS3(InAGateway):
    """By requests that are signed."""

    speaks = "s3"

    def test_a_block_is_one_request(self, place: SnapshotPlace, bucket: Bucket) -> None:
        """Arrow's client makes three of it as a rule, which cost three times as much."""
        place.write("block", bytes(1 << 20))
        assert isinstance(bucket, BucketFolder)
        etag = os.getxattr(bucket.folder / "of" / "task" / "counts" / "block", "user.etag")
        assert b"-" not in etag, "of an object in parts it says how many they were"

    def test_who_has_another_key_is_refused(
        self, place: SnapshotPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        module._by_address.cache_clear()
        with pytest.raises(OSError, match=r"SIGNATURE_DOES_NOT_MATCH|ACCESS_DENIED"):
            place.write("block", b"x")


@pytest.mark.nightly
class TestGoogle(InAGateway):
    """Nobody is asked who he is."""

    speaks = "gs"


def _takes_files(bucket: Bucket) -> bool:
    try:
        bucket.put("probe", b"")
        bucket.delete("probe")
    except (OSError, HTTPError):
        return False
    return True


@pytest.mark.nightly
class TestHdfs(SnapshotsInAnObjectStore):
    """A NameNode, beside one that is not there."""

    @pytest.fixture
    def bucket(self, hdfs: HdfsCluster) -> Bucket:
        hdfs.ensure_running()
        files = HdfsFiles(hdfs)
        eventually(lambda: _takes_files(files), "the DataNode is back, which the NameNode has not missed")
        return files

    @pytest.mark.parametrize("harm", ["kill", "pause"])
    def test_without_a_data_node_there_is_no_snapshot_until_it_is_back(
        self,
        harm: str,
        hdfs: HdfsCluster,
        bucket: Bucket,
        place: SnapshotPlace,
        store: StoreFile,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(module, "_LET_BE_S", 0.5)
        take(store.path, place, CHANGELOG)
        settled(store, 10_010)
        getattr(hdfs, harm)(2)
        try:
            with pytest.raises(OSError, match=r"no DataNode answers|has not answered|did not answer"):
                take(store.path, place, CHANGELOG)
            assert restored(place, tmp_path) is None
        finally:
            hdfs.ensure_running()
        eventually(lambda: _takes_files(bucket) and not _refused(place), "the DataNode is back")
        take(store.path, place, CHANGELOG)
        assert restored(place, tmp_path) == 10_010

    def test_a_host_may_be_left_out_by_its_address(self, hdfs: HdfsCluster, bucket: Bucket) -> None:
        """There is one here, so nothing is left. By the name and port that it sends to, nothing is left out."""
        bucket.put("file", b"x")
        assert isinstance(bucket, HdfsFiles)
        with pytest.raises(OSError, match="not excluded nodes"):
            bucket.ask("GET", "file", "OPEN&excludedatanodes=127.0.0.1")
        there = f"127.0.0.1:{hdfs.nodes[1].web_port}"
        assert bucket.ask("GET", "file", f"OPEN&excludedatanodes={there}") == b"x"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hdfs://names/snapshots", "webhdfs://NAMENODE:9870/PATH"),
        ("abfs://container@account.dfs.core.windows.net/of", "write abfs://CONTAINER/PATH"),
        ("abfs://container/of", "Missing azure.storage.connect"),
        ("s3://", "names no bucket"),
        ("webhdfs:///of", "names no bucket, container or NameNode"),
        ("s3://user:secret@?region=a", "names no bucket"),
    ],
)
def test_what_workers_do_not_reach_is_refused_with_the_way_out(address: str, said: str) -> None:
    config = {
        **CONFIG,
        "systems.local.samza.factory": "local",
        "task.class": "a:B",
        "job.snapshot.dir": address,
    }
    with pytest.raises(ConfigError, match=said) as refused:
        validate(config)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("address", ["s3://user:secret@bucket?no=option", "gs://secret@"])
def test_an_address_that_is_none_is_refused_without_its_key(address: str) -> None:
    with pytest.raises(ConfigError, match="do not take this address") as refused:
        open_place(address, Settings.of(CONFIG).azure)
    assert "secret" not in str(refused.value)
