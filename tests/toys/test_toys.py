"""A back end is a folder, an entry point and a conformance class: toys show that nothing else is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.toys import ENTRY_POINTS
from tests.toys.checkpoints import FolderCheckpointStore
from tests.toys.coordination import JournalCoordination
from tests.toys.groupers import by_stream, in_blocks
from tests.toys.journal import Journal
from tests.toys.launcher import ChildLauncher
from tests.toys.log import JournalLog
from tests.toys.system import JournalSystem

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.store import Offsets, StoreContext
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.base import Coordination
from grete.grouping.ssp import SspGrouper
from grete.grouping.task_names import TaskNameGrouper
from grete.keyed_log.base import KeyedLog
from grete.launch.base import Launcher
from grete.launch.factory import LaunchContext
from grete.model.ids import JobId, TaskName
from grete.model.streams import StreamSpec
from grete.systems.base import System
from grete.systems.commit_group import SegmentWrite
from grete.systems.local.system import Message
from grete.systems.records import pack
from grete.testing.clock import ManualClock
from grete.testing.conformance.cells import CellsConformance
from grete.testing.conformance.checkpoint_store import CheckpointStoreConformance
from grete.testing.conformance.coordination import CoordinationConformance
from grete.testing.conformance.grouping import SspGrouperConformance, TaskNameGrouperConformance
from grete.testing.conformance.keyed_log import KeyedLogConformance
from grete.testing.conformance.launch import KillingLauncherConformance, behave
from grete.testing.conformance.recipes import RecipesConformance
from grete.testing.conformance.system import Records
from grete.testing.conformance.transactions import TransactionsConformance

ROOT = Path(__file__).parents[2]
APPLICATION = """
import grete

class Count(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("toy.out", count, key=envelope.key)
"""


class Toy:
    name = "toy"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _open(self) -> JournalSystem:
        return JournalSystem(Journal(self._directory), SystemClock())

    def admin(self) -> System:
        return self._open()

    def store(self) -> System:
        return self._open()

    def append(self, stream: str, partition: int, records: Records) -> None:
        self._open().append(stream, (Message(key, value, 0, partition) for key, value in records))

    def read(self, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        return list(self._open().changes(stream, partition, 0, 1_000))

    def checkpoint_log(self, name: str) -> KeyedLog:
        return self._open().checkpoint_log(name)

    def segment(self, stream: str, partition: int, records: Records) -> SegmentWrite:
        keys, values = zip(*records, strict=True)
        return SegmentWrite(stream, partition, len(records), pack(keys, values, [0] * len(records)))


class TestToySystem(TransactionsConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> Toy:
        return Toy(tmp_path)


class TestToyLog(KeyedLogConformance):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], KeyedLog]:
        return lambda: JournalLog(Journal(tmp_path), "log", SystemClock())


class TestToyCoordination(CoordinationConformance, CellsConformance, RecipesConformance):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def pass_time(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance

    @pytest.fixture
    def contender(self, clock: ManualClock, tmp_path: Path) -> Callable[[], Coordination]:
        return lambda: JournalCoordination(Journal(tmp_path), clock, ttl_s=self.TTL_S)


class ToyCheckpoints:
    def __init__(self, folder: Path) -> None:
        self._settings = Settings.of({"task.checkpoint.path": str(folder)})

    def open(self) -> FolderCheckpointStore:
        return FolderCheckpointStore(StoreContext(JobId("orders"), self._settings, Path(), SystemClock()))

    def write_as_samza(self, task: TaskName, offsets: Offsets) -> None:
        written = {str(ssp): offset for ssp, offset in offsets.items()}
        self.open().path(task).write_text(json.dumps({"offsets": written}))

    def damage(self, task: TaskName) -> None:
        self.open().path(task).write_text('{"offsets": {')


class TestToyCheckpointStore(CheckpointStoreConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> ToyCheckpoints:
        return ToyCheckpoints(tmp_path)


class TestToyLauncher(KillingLauncherConformance):
    CAN_ADOPT = False

    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Iterator[Launcher]:
        command = [sys.executable, "-m", "grete.testing.conformance.launch"]
        launcher = ChildLauncher(LaunchContext(Settings.of({}), command, behave, tmp_path / "logs"))
        yield launcher
        launcher.close()


class TestToySspGrouper(SspGrouperConformance):
    @pytest.fixture
    def grouper(self) -> SspGrouper:
        return by_stream


class TestToyTaskNameGrouper(TaskNameGrouperConformance):
    @pytest.fixture
    def grouper(self) -> TaskNameGrouper:
        return in_blocks


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of processes for which the toys are an installed distribution."""
    metadata = tmp_path / "site" / "grete_toys-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: grete-toys\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(metadata.parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "GRETE_HOME": str(tmp_path / "home")}


def test_a_job_runs_on_a_system_an_election_a_launcher_and_groupers_that_no_file_of_the_product_names(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    (tmp_path / "counting.py").write_text(APPLICATION)
    config = tmp_path / "job.properties"
    settings = {
        "job.name": f"count-{uuid.uuid4().hex[:8]}",
        "job.application.path": str(tmp_path),
        "job.coordinator.system": "toy",
        "job.factory.class": "toy",
        "job.systemstreampartition.grouper.factory": "by-stream",
        "task.name.grouper.factory": "in-blocks",
        "task.checkpoint.factory": "toy",
        "task.checkpoint.path": str(tmp_path / "checkpoints"),
        "systems.toy.samza.factory": "toy",
        "systems.toy.path": str(tmp_path / "toy"),
        "systems.toy.samza.key.serde": "string",
        "systems.toy.samza.msg.serde": "json",
        "systems.toy.samza.offset.default": "oldest",
        "serializers.registry.string.class": "string",
        "serializers.registry.json.class": "json",
        "stores.counts.factory": "grete.store.sqlite",
        "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "json",
        "stores.counts.changelog": "toy.counts",
        "task.class": "counting:Count",
        "task.inputs": "toy.in",
        "task.outputs": "toy.out",
    }
    config.write_text("\n".join(f"{key}={value}" for key, value in settings.items()))
    system = JournalSystem(Journal(tmp_path / "toy"), SystemClock())
    system.create_stream(StreamSpec("in", 2))
    for done in range(1, 3):  # the second run goes on where the first one stopped, with its state
        system.append("in", [Message(b"%d" % (i % 5), b"null", i) for i in range(20)])
        command = [
            sys.executable,
            "-m",
            "grete.testing.sparkless",
            "--config",
            str(config),
            "--until-drained",
        ]
        ended = subprocess.run(command, env=installed, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        assert system.partition_count("out") == 2
        counted = [pair for partition in range(2) for pair in system.changes("out", partition, 0, 1_000)]
        assert sorted(counted) == sorted(
            (b"%d" % key, b"%d" % count) for key in range(5) for count in range(1, 4 * done + 1)
        )
    home = tmp_path / "home"
    assert not (home / "local").exists()
    assert (tmp_path / "checkpoints" / "toy.in").exists(), "the toy checkpoint store has a copy"
    assert list(home.rglob("logs/0.json")), "the toy launcher had the container's word written there"
    checkpoints = system.checkpoint_log(checkpoint_log_name(JobId(settings["job.name"]))).read()
    assert any(b"toy.in" in record.key for record in checkpoints), "the one task reads the whole stream"


@pytest.mark.parametrize("is_there", [True, False])
def test_the_doctor_asks_the_probe_that_a_plug_in_brings(
    tmp_path: Path, installed: dict[str, str], is_there: bool
) -> None:
    journal, config = tmp_path / "toy", tmp_path / "job.properties"
    if is_there:
        journal.mkdir()
    settings = ["job.name=j", "task.class=a:B", "task.inputs=toy.in", "job.coordinator.system=toy"]
    config.write_text("\n".join([*settings, "systems.toy.samza.factory=toy", f"systems.toy.path={journal}"]))
    command = [sys.executable, "-m", "grete.cli.main", "doctor", "--config", str(config)]
    said = subprocess.run(command, env=installed, capture_output=True, text=True).stdout
    way_out = "" if is_there else "\n      set systems.toy.path to a folder that is there"
    assert f"{'ok  ' if is_there else 'FAIL'}  journal: {journal}{way_out}\n" in said


def test_a_plug_in_of_a_kind_that_nothing_loads_is_refused(tmp_path: Path, installed: dict[str, str]) -> None:
    with next(tmp_path.rglob("entry_points.txt")).open("a") as file:
        file.write("[grete.stores]\ntoy = tests.toys:SYSTEM\n")
    config = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in", "stores.counts.factory": "toy"}
    program = f"from grete.config.rules.validate import check; print(*check({config!r}).errors)"
    said = subprocess.run(
        [sys.executable, "-c", program], env=installed, capture_output=True, text=True, check=True
    )
    assert "stores.counts.factory='toy': it is not known; known are grete.store.sqlite" in said.stdout


def test_the_product_does_not_know_the_toys() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    assert not [text for text in sources if "tests.toys" in text or "JournalSystem" in text]
