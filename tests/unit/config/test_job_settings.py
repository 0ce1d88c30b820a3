"""Settings of the job and its coordinator: read through the key table, each when it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config.choices import HttpAuthentication, LauncherChoice
from grete.config.settings import Settings
from grete.config.settings.coordinator import RetryPolicy
from grete.errors import ConfigError
from grete.model.ids import JobId, SystemStream

JOB = {"job.name": "orders"}


def test_a_wrong_value_fails_only_what_needs_it() -> None:
    settings = Settings.of({**JOB, "job.http.port": "x", "job.container.count": "many"})
    assert settings.job.id == JobId("orders", "1")
    assert settings.coordinator.http_authentication is HttpAuthentication.TOKEN
    with pytest.raises(ConfigError, match=r"job\.http\.port='x': it is not a port"):
        _ = settings.coordinator.http_port
    with pytest.raises(ConfigError, match=r"job\.container\.count='many'"):
        _ = settings.job.container_count


@pytest.mark.parametrize("config", [{}, {"job.name": ""}, {"job.id": "2"}])
def test_a_job_without_a_name_has_no_id(config: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"Missing required config: job\.name. Set it to the job's name"):
        _ = Settings.of(config).job.id
    assert Settings.of(config).job.written_id.name == ""


def test_choices_are_read_in_any_case() -> None:
    config = {"job.launcher": "Thread", "job.http.auth": "NONE"}
    assert Settings.of(config).job.launcher is LauncherChoice.THREAD
    assert Settings.of(config).coordinator.http_authentication is HttpAuthentication.NONE


def test_autosizings_container_count_counts_while_it_is_enabled_and_set() -> None:
    counts = {"job.container.count": "2", "job.autosizing.container.count": "5"}
    assert Settings.of(counts).job.container_count == 2
    assert Settings.of({**counts, "job.autosizing.enabled": "true"}).job.container_count == 5
    assert (
        Settings.of({"job.container.count": "2", "job.autosizing.enabled": "true"}).job.container_count == 2
    )
    assert Settings.of({"yarn.container.count": "3"}).job.container_count == 3


def test_failed_containers_are_retried_as_the_cluster_managers_keys_say() -> None:
    assert Settings.of({}).coordinator.retry_policy == RetryPolicy()
    prefix = "cluster-manager.container."
    keys = {"retry.count": "-1", "retry.window.ms": "1500", "fail.job.after.retries": "FALSE"}
    config = {prefix + key: value for key, value in keys.items()}
    assert Settings.of(config).coordinator.retry_policy == RetryPolicy(-1, 1.5, fail_job=False)


def test_a_container_is_an_orphan_after_all_its_retries_unless_its_coordinator_is_not_watched() -> None:
    config = {
        "yarn.container.heartbeat.retry.count": "3",
        "yarn.container.heartbeat.retry-sleep-duration.ms": "500",
    }
    assert Settings.of({}).coordinator.orphan_s == 50
    assert Settings.of(config).coordinator.orphan_s == 1.5
    unwatched = {**config, "job.container.heartbeat.monitor.enabled": "false"}
    assert Settings.of(unwatched).coordinator.orphan_s < 0


def test_standby_containers_keep_their_copies_elsewhere_only_when_a_folder_is_named(tmp_path: Path) -> None:
    job, home = JobId("orders"), tmp_path
    plain, named = Settings.of({}).job, Settings.of({"job.standbytasks.state.dir": "/other"}).job
    assert (
        plain.state_directory(job, home) == plain.standby_directory(job, home) == home / "jobs" / "orders-1"
    )
    assert named.standby_directory(job, home) == Path("/other/orders-1")
    assert named.state_directory(job, home) == home / "jobs" / "orders-1"


def test_diagnostics_have_a_stream_only_while_they_are_enabled() -> None:
    stream = {"metrics.reporter.diagnosticsreporter.stream": "local.events"}
    assert Settings.of(stream).job.diagnostics_stream is None
    enabled = {**stream, "job.diagnostics.enabled": "true"}
    assert Settings.of(enabled).job.diagnostics_stream == SystemStream("local", "events")
    with pytest.raises(ConfigError, match=r"Missing required config: metrics\.reporter\.diagnosticsreporter"):
        _ = Settings.of({"job.diagnostics.enabled": "true"}).job.diagnostics_stream
