"""A job that has finished, for tests of commands that look at one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete.model.ids import ContainerId, JobId
from grete.operations import JobHandle, open_job

JOB, ZERO = JobId("orders"), ContainerId("0")
CONFIG = {
    "job.name": "orders",
    "job.coordinator.system": "local",
    "task.class": "orders:Orders",
    "task.inputs": "local.in",
    "stores.totals.factory": "grete.store.sqlite",
    "shop.password": "hunter2hunter2",
    "shop.token": "${env:SHOP_TOKEN}",
}
GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"


@contextmanager
def opened() -> Iterator[JobHandle]:
    with open_job(JOB, must_exist=False) as handle:
        yield handle


def config_file(job: Path, **changes: str) -> str:
    path = job / "orders.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**CONFIG, **changes}.items()))
    return str(path)


def config() -> dict[str, str]:
    with opened() as handle:
        return handle.config()


Output = pytest.CaptureFixture[str]
