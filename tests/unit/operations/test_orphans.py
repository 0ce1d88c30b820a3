"""What may still commit for a job that nobody leads, and what commands do about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.coordinator.assignment_records import ssp_key
from grete.errors import Fenced
from grete.metadata.launches import LaunchRecord, read_broken_off, write_end, write_launch
from grete.model.fence import container_fence
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_TASK_PARTITION
from grete.model.streams import StreamSpec
from grete.operations import JobHandle, open_job
from grete.operations.checkpoint_overwrite import overwrite
from grete.operations.orphans import standing_still
from grete.systems.commit_group import CommitGroup
from grete.systems.local.system import LocalSystem, Message

JOB, ZERO = JobId("orders"), ContainerId("0")
SSP = SystemStreamPartition("local", "in", 0)
CONFIG = {"job.name": "orders", "task.class": "orders:Orders", "task.inputs": "local.in"}
RECORD = LaunchRecord(7, 1, "", "tasks", "", "", 9)


def moved(handle: JobHandle) -> None:
    overwrite(handle, {TaskName("Partition 0"): {SSP: "0"}}, replace=True, live=False, reason="")


def stood_still(handle: JobHandle) -> None:
    with standing_still(handle):
        pass


@pytest.mark.parametrize("command", [moved, stood_still])
@pytest.mark.parametrize("is_broken_off", [True, False])
def test_who_broke_off_or_was_left_commits_nothing_once_a_command_has_moved_the_job(
    home: Path, command: Callable[[JobHandle], None], is_broken_off: bool
) -> None:
    """Executors go on for a while when their driver was killed, and its coordinator may have died as well."""
    with (
        closing(LocalSystem(home / "local", SystemClock())) as system,
        open_job(JOB, must_exist=False) as handle,
    ):
        system.create_stream(StreamSpec("in", 1))
        system.append("in", [Message(None, b"x", 0, 0)])
        handle.stream.write_config(CONFIG, run_id="run-1")
        handle.stream.put(SET_TASK_PARTITION, {ssp_key(SSP): '["Partition 0"]'})
        if is_broken_off:
            write_end(handle.stream, ZERO, RECORD)
            assert read_broken_off(handle.stream) == {ZERO: 9}
        else:
            write_launch(handle.stream, ZERO, RECORD)
        its_own = container_fence(JOB, ZERO, RECORD.fence)
        system.raise_fence([its_own])
        system.commit(CommitGroup([its_own], [], "", []))
        command(handle)
        with pytest.raises(Fenced):
            system.commit(CommitGroup([its_own], [], "", []))
