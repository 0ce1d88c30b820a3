"""One small job through the real command line and Spark: stopping, dying, poison, state that is lost and found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RECORDS = 3_000


def start(job: Any) -> subprocess.Popen[bytes]:
    command = [word for word in job.command("run", "--quiet")]
    return subprocess.Popen(command, env=job.environment(), stderr=subprocess.DEVNULL)


def test_a_running_job_follows_its_input_and_stops_at_a_batch_boundary(counter_job: Any) -> None:
    counter_job.fill(RECORDS)
    running = start(counter_job)
    try:
        counter_job.wait_until_counted(RECORDS)
        words = [*counter_job.command("store", "scan"), "counts"]
        scanned = subprocess.run(
            words, env=counter_job.environment(), capture_output=True, text=True, timeout=patient(60)
        )
        entries = [json.loads(line) for line in scanned.stdout.splitlines()]
        assert sum(one["value"] for one in entries) == RECORDS, scanned.stderr
        assert len({one["key"] for one in entries}) == len(entries)
        stop = subprocess.run(
            counter_job.command("stop"),
            env=counter_job.environment(),
            capture_output=True,
            text=True,
            timeout=patient(90),
        )
        assert stop.returncode == 0, stop.stderr
        assert running.wait(patient(60)) == 0
    finally:
        running.kill()
        running.wait()
    counter_job.assert_exactly_once(RECORDS)
    status = subprocess.run(
        counter_job.command("status", "-o", "json"),
        env=counter_job.environment(),
        capture_output=True,
        text=True,
    )
    assert "stopped" in json.dumps(json.loads(status.stdout))


def test_stores_come_back_from_their_changelogs_and_the_job_goes_on_from_its_checkpoints(
    counter_job: Any,
) -> None:
    counter_job.fill(RECORDS)
    assert counter_job.run().returncode == 0
    shutil.rmtree(counter_job.home / "jobs")  # store files and Spark's checkpoints: caches, both of them
    counter_job.fill(RECORDS)
    assert counter_job.run().returncode == 0
    counter_job.assert_exactly_once(2 * RECORDS)
    log = (counter_job.home / "jobs" / "counter-1" / "logs" / "container-0.log").read_text()
    assert " INFO counter counting in Partition 1\n" in log, "what tasks log, in Spark's workers too"


def test_when_sparks_jvm_dies_alone_the_container_is_started_again(counter_job: Any) -> None:
    counter_job.fill(RECORDS)
    running = start(counter_job)
    try:
        counter_job.wait_until_counted(RECORDS)
        [jvm] = [pid for pid in descendants(running.pid) if "java" in command_of(pid)]
        os.kill(jvm, signal.SIGKILL)
        counter_job.fill(RECORDS)
        counter_job.wait_until_counted(2 * RECORDS)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(patient(90)) == 0
    counter_job.assert_exactly_once(2 * RECORDS)


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().split(" ")[0]


def test_a_poison_message_fails_the_job_by_name_and_nothing_is_half_done(counter_job: Any) -> None:
    counter_job.fill(RECORDS)
    with closing(LocalSystem(counter_job.home / "local", SystemClock())) as local:
        local.append("in", [Message(b"key0", b"{not json", 1, 0)])
        at = int(local.offsets("in")[0].upcoming) - 1
    with counter_job.config.open("a") as config:
        config.write("cluster-manager.container.retry.count=0\n")
    result = counter_job.run()
    assert result.returncode == 3
    assert "container 0 ended with code 3: JSONDecodeError " in result.stderr, (
        "reported by a worker through the JVM"
    )
    assert f" at local.in.0 offset {at}, task 'Partition 0'" in result.stderr
    with counter_job.config.open("a") as config:
        config.write("task.poison.policy=dead-letter\ntask.poison.dead-letter.stream=local.dead\n")
    result = counter_job.run(spark=False)
    assert result.returncode == 0, result.stderr + counter_job.log()
    counter_job.assert_exactly_once(RECORDS)
