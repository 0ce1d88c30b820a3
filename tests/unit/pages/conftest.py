"""Pages over a finished job, for browsers that have signed in or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.unit.finished_job import opened
from tests.unit.pages.browser import TOKENS, signed_in

from grete.clock import SystemClock
from grete.metadata.job_index import jobs
from grete.model.messages import SET_TASK_PARTITION
from grete.pages.job_pages import application
from grete.pages.sign_in import SignIn
from grete.pages.watch import Watch
from grete.server.guard import Guard
from grete.server.rights import Right
from grete.testing.waiting import eventually


@pytest.fixture
def watch(job: Path) -> Iterator[Watch]:
    """Looks at the finished job, whose tasks read a partition each."""
    with opened() as handle:
        inputs = {
            f'{{"system":"local","partition":{number},"stream":"in","keyBucket":-1}}': f'["Partition {number}"]'
            for number in range(2)
        }
        handle.stream.put(SET_TASK_PARTITION, inputs)
    made = Watch(lambda: jobs(job))
    made.start()
    eventually(lambda: made.number, "the first look")
    yield made
    made.close()


@pytest.fixture
def stranger(watch: Watch) -> TestClient:
    """A browser that has not signed in."""
    app = application(watch, SignIn(TOKENS, SystemClock()), "session")
    app.add_middleware(Guard, hosts=["localhost"])
    return TestClient(app, base_url="http://localhost", follow_redirects=False)


@pytest.fixture
def reader(stranger: TestClient) -> TestClient:
    return signed_in(stranger, Right.READ)


@pytest.fixture
def operator(stranger: TestClient) -> TestClient:
    return signed_in(stranger, Right.WRITE)
