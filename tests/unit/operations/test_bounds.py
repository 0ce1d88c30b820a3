"""Numbers that a slip of the pen or a foreign writer asks for are refused before they are used."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from grete.assembly import RunOptions, run_job
from grete.config.settings import Settings
from grete.errors import ConfigError, JobError
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations.job_handle import open_job
from grete.server.serve import bind
from grete.systems.local.system import LocalSystem


@pytest.mark.parametrize("count", ["0", "-1", "10001", "2147483647", "9" * 5000, "²", "", "x"])
def test_an_impossible_number_of_containers_is_refused(count: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.container\.count"):
        _ = Settings.of({"job.container.count": count}).job.container_count


@pytest.mark.parametrize("ttl", ["9223372036854775807", "-1", "0", "soon", "9" * 5000])
def test_a_lease_that_is_none_leaves_a_silent_leader_alone_for_the_usual_time(ttl: str) -> None:
    assert Settings.of({"job.coordinator.lease.ttl.ms": ttl}).coordinator.lease_ttl_s == 15


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_every_loopback_address_that_validates_can_be_served(host: str) -> None:
    bind(host, 0).close()


def test_a_port_in_use_is_found_before_anything_is_written(home: Path, system: LocalSystem) -> None:
    system.create_stream(StreamSpec("in", 1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = home / "job.properties"
        port = taken.getsockname()[1]
        path.write_text(f"job.name=job\ntask.class=x:X\ntask.inputs=local.in\njob.http.port={port}\n")
        with pytest.raises(ConfigError, match="cannot bind"):
            run_job(RunOptions(config_paths=[str(path)]))
    with pytest.raises(JobError, match="there is no job"), open_job(JobId("job")) as handle:
        handle.config()
