"""A coordinator that is served, with all that there is to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.unit.coordinator.test_loop import JOB, ZERO, Coordinator
from tests.unit.server.asking import TOKENS, Stores

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.config.settings import Settings
from grete.coordinator.job_model import Remembered, calculate
from grete.metadata.history import History
from grete.metadata.input_streams import input_records
from grete.metadata.startpoint_state import state_entry
from grete.metadata.startpoints import startpoint_entry, startpoint_key
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName
from grete.model.startpoint import Startpoint, StartpointKind, StateChoice, StateRequest
from grete.server.app import build_app
from grete.systems.base import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.wire.container_protocol import Heartbeat

CONFIG = {
    "job.name": "orders",
    "task.inputs": "local.in",
    "systems.local.samza.factory": "local",
    "db.password": "hunter2hunter2",
}
TASK, SSP = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0)


@pytest.fixture
def client(home: Path, system: LocalSystem) -> Iterator[TestClient]:
    """A coordinator whose job has all that there is to say: a container that reports, startpoints, lag, a history."""
    system.create_stream(StreamSpec("in", 1))
    system.append("in", [Message(None, b"v", 1, partition=0) for _ in range(3)])
    log = system.checkpoint_log(checkpoint_log_name(JOB))
    log.append(commit_entries({TASK: TaskCommit({SSP: "0"})}, grouper="g"))
    made = Coordinator()
    stream = made.view._stream
    stream.write_config(CONFIG, run_id="run")
    now_ms = made.clock.wall_ms()
    stream.log.append(
        [startpoint_entry(startpoint_key(SSP, None), Startpoint(StartpointKind.OLDEST, now_ms))]
    )
    stream.log.append([state_entry(stream, TASK, StateRequest(StateChoice.RESTORE, now_ms, {"counts": 3}))])
    stream.append([stream.entry(*one) for one in input_records({SSP.system_stream: "uid"})])
    History(stream).append("deployment", reason="a test")
    made.view.containers.checkpoint_log = system.checkpoint_log
    settings = Settings.of(CONFIG)
    made.view.containers.serve(
        settings, calculate(settings, {SystemStream("local", "in"): 1}, Remembered()).model
    )
    made.registry.open()
    made.view.containers.heartbeat(
        ZERO, Heartbeat(made.containers.started[-1].epoch, "running", records=2, commits=1)
    )
    app = build_app(made.view, tokens=TOKENS, hosts=frozenset({"127.0.0.1"}), stores=Stores())
    with TestClient(app, raise_server_exceptions=False) as opened:
        opened.epoch = made.containers.started[-1].epoch  # type: ignore[attr-defined]
        yield opened
