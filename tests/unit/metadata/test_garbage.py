"""Garbage in every type of record of a coordinator stream: the job starts, and every command works, after each."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.clock import SystemClock
from grete.coordinator.metadata_manager import JobCoordinatorMetadataManager
from grete.coordinator.plan import Planner
from grete.errors import JobError
from grete.keyed_log.base import Entry
from grete.metadata.config_history import config_before, startable_settings
from grete.metadata.container_requests import read_container_requests
from grete.metadata.coordinator_stream import GENERATION
from grete.metadata.history import HISTORY, History
from grete.metadata.input_streams import INPUT
from grete.metadata.job_state import (
    AT_WORK,
    CLONE,
    REQUEST,
    STATE,
    RequestKind,
    read_origin,
    read_request,
    read_state,
    read_stop_request,
)
from grete.metadata.launches import BROKEN_OFF, LAUNCH, read_broken_off, read_launches
from grete.model.ids import JobId
from grete.model.messages import SET_CHECKPOINT, SET_MIGRATION_INFO, VALUE_FIELDS
from grete.model.streams import StreamSpec
from grete.operations.job_handle import JobHandle, open_job
from grete.systems.local.system import LocalSystem

CASES = 5_000 if os.environ.get("GRETE_NIGHTLY") == "1" else 120
BLOCKS = max(4, CASES // 50)
"""Each has a job of its own: every command reads the whole stream, in which each case leaves ten records for good."""
TYPES = (
    *VALUE_FIELDS,
    *(
        SET_CHECKPOINT,
        SET_MIGRATION_INFO,
        GENERATION,
        HISTORY,
        STATE,
        REQUEST,
        CLONE,
        LAUNCH,
        BROKEN_OFF,
        AT_WORK,
        INPUT,
    ),
    *(
        "grete-startpoint",
        "grete-container-request",
        "samza-startpoint",
        "samza-fanout",
        "set-config",
        "unknown",
    ),
)
KEYS = (
    *(
        CLONE,
        "",
        " ",
        "k",
        "job",
        "stop",
        "drain",
        "current",
        "0",
        "-1",
        "nodot",
        "local.",
        ".in",
        "local.in",
        "local.in.0",
    ),
    *(
        "\ud800",
        "\x00",
        "\x1b[2J",
        "a\nb",
        "x" * 5000,
        "9" * 5000,
        "²",
        "Partition 0",
        "Partition 99",
        "{}",
        "[]",
    ),
    '{"system":"local","stream":"in","partition":"x"}',
    '{"system":"local","stream":"in","partition":0}',
)
TEXTS = (
    *(
        "",
        "0",
        "-1",
        "9" * 30,
        "9" * 5000,
        "NaN",
        "²",
        "\ud800",
        "\x00",
        "\x1b]0;x\x07",
        "null",
        "{}",
        "[]",
        "x" * 9999,
    ),
    *(
        "running",
        "http://[::1",
        "/etc/passwd",
        "local.in.0",
        "[" * 2000,
        '["Partition 0"]',
        "Active",
        "Standby",
    ),
)
NAMES = (
    *VALUE_FIELDS.values(),
    *(
        "uid",
        "epoch",
        "state",
        "url",
        "token_file",
        "run-id",
        "run_id",
        "deadline-s",
        "reason",
        "event",
        "message",
    ),
    *("serial", "handle", "tasks", "query", "process", "fence", "what", "container", "id", "\ud800", ""),
)
Output = pytest.CaptureFixture[str]


def value(chance: random.Random) -> bytes:
    """Bytes that are no JSON, JSON that is no message, and messages of nonsense."""
    shape = chance.random()
    if shape < 0.2:
        return chance.choice(
            (b"", b"{", b"\xff", b"null", b"[]", b'{"values":7}', b"[" * 100_000, b'{"values":{}}')
        )
    values = {name: chance.choice(TEXTS) for name in chance.choices(NAMES, k=chance.randrange(1, 12))}
    odd = chance.choice((7, None, [], {}, True, -(10**30), 1.5))
    if shape < 0.4:
        values[chance.choice(NAMES)] = odd  # type: ignore[assignment] # as foreign writers do
    return json.dumps(
        {"values": values, "timestamp": odd, "host": chance.choice(TEXTS), "username": odd}
    ).encode()


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Iterator[JobHandle]:
    system.create_stream(StreamSpec("in", 2))
    with open_job(JobId("job"), must_exist=False) as handle:
        config = {
            "job.name": "job",
            "task.inputs": "local.in",
            "task.class": "x:X",
            "stores.s.factory": "grete.store.sqlite",
        }
        handle.stream.write_config(config, run_id="first")
        handle.stream.write_config({**config, "my.key": "1"}, run_id="second")
        start(handle)
        yield handle


def start(handle: JobHandle) -> None:
    """Reads and writes of a coordinator before its containers run."""
    stream = handle.stream
    with ExitStack() as stack:
        settings = startable_settings(stream)
        plan = Planner(handle.job, handle.home, stream, SystemClock(), stack).plan(settings)
    assert sorted(plan.model.tasks) == ["Partition 0", "Partition 1"]
    JobCoordinatorMetadataManager(stream, "NON_YARN").read()
    (
        read_launches(stream),
        read_broken_off(stream),
        config_before(stream, {}),
        read_origin(stream),
        read_state(stream),
        read_stop_request(stream),
        read_request(stream, RequestKind.DRAIN),
    )
    read_container_requests(stream)
    History(stream).append("attempt", run_id="r")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_job_starts_and_commands_work_after_garbage_in_any_record(
    job: JobHandle, block: int, capsys: Output
) -> None:
    for seed in range(block, CASES, BLOCKS):
        chance = random.Random(seed)
        keys = [
            json.dumps([chance.choice((1, 1, 1, "1", 2)), chance.choice(TYPES), chance.choice(KEYS)]).encode()
            for _ in range(3)
        ]
        job.coordinator_log.append([Entry(key, value(chance)) for key in keys])
        context = f"seed {seed}: {keys!r:.300}"
        try:
            start(job)
        except JobError as error:
            if "set-changelog" not in str(error):
                raise AssertionError(context) from error
        for words in (["status"], ["history"], ["config", "history"], ["config", "rollback"], ["job-model"]):
            code = main([*words, "--job", "job"])
            said = capsys.readouterr()
            assert code == 0, f"{context}: {words}: {said.err}"
            assert "\x1b" not in said.out + said.err, f"{context}: {words}"
        assert main(["stream", "quarantine", "--job", "job", "--remove-all", "--execute"]) == 0, context
        start(job)
        capsys.readouterr()
