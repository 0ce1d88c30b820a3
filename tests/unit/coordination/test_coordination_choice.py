"""Which service elects leaders, and what of the others it needs: nothing."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.coordination.factory import open_coordination

JOB = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in"}
WITHOUT_KAZOO = """
import sys
from pathlib import Path

sys.modules["kazoo"] = None
from grete.assembly import RunOptions
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.factory import open_coordination

config = {
    "job.name": "j",
    "azure.storage.connect": "UseDevelopmentStorage=true",
    "job.coordinator.zk.connect": "127.0.0.1:1",
}
for service in sys.argv[2:]:
    settings = Settings.of({**config, "job.coordinator.factory": service})
    open_coordination(settings, Path(sys.argv[1]), SystemClock()).close()
    print(service)
"""


def test_what_elects_in_azure_needs_no_client_of_zookeeper(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_KAZOO, str(tmp_path), "azure", "sqlite", "zookeeper"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["azure", "sqlite"], done.stderr
    assert (
        "MissingExtra: kazoo is not installed; install it with: pip install 'grete[zookeeper]'" in done.stderr
    )


@pytest.mark.parametrize(
    "name", ["passthrough", "org.apache.samza.standalone.PassthroughJobCoordinatorFactory"]
)
def test_samzas_factory_that_elects_nobody_leaves_the_election_where_the_stream_is(
    name: str, tmp_path: Path
) -> None:
    """There is always one leader, since whoever has a job model has calculated it."""
    named = {**JOB, "job.coordinator.factory": name}
    assert check(named).errors == ()
    with (
        closing(open_coordination(Settings.of(named), tmp_path, SystemClock())) as passing,
        closing(open_coordination(Settings.of(JOB), tmp_path, SystemClock())) as plain,
    ):
        led = passing.campaign("job/j")
        assert type(passing) is type(plain)
        assert plain.leading_epoch("job/j") == led.epoch
