"""Alerts as Prometheus evaluates them: each fires at its cause and at nothing else, and a real job's causes do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.prometheus import PROGRAMS, asked, firing, running_prometheus, scraped
from tests.support.visits_job import append, running_visits

from grete.channel.certificate import CertificateFiles, _self_signed
from grete.monitoring.alerts import alerts, rules
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually

pytestmark = pytest.mark.timeout(180)
AT = 'job="grete", instance="a"'
CALM = {
    f"up{{{AT}}}": "1x120",
    f"grete_is_leader{{{AT}}}": "1x120",
    f"grete_leader_epoch{{{AT}}}": "4x120",
    f"grete_lease_renewal_failures_total{{{AT}}}": "2x120",
    f"grete_needed_containers{{{AT}}}": "0x120",
    f"grete_job_healthy{{{AT}}}": "1x120",
    f'grete_heartbeat_age_seconds{{{AT}, container="0"}}': "1x120",
    f'grete_container_restarts_total{{{AT}, container="0"}}': "2x120",
    f"grete_lag_messages{{{AT}}}": "800x120",
    f'grete_commit_calls_total{{{AT}, container="0"}}': "0+50x120",
    f'grete_dead_letters_total{{{AT}, container="0"}}': "7x120",
    f'grete_container_exits{{{AT}, meaning="fenced"}}': "1x120",
    f'grete_disk_free_bytes{{{AT}, folder="home"}}': "40x120",
    f'grete_disk_size_bytes{{{AT}, folder="home"}}': "100x120",
    f"grete_http_certificate_seconds{{{AT}}}": "900000x120",
    f"grete_barriers_started_total{{{AT}}}": "1x120",
    f"grete_barriers_timed_out_total{{{AT}}}": "1x120",
    f"grete_quarantined_records{{{AT}}}": "0x120",
    f'grete_monitor_problem{{{AT}, monitor="lag"}}': "0x120",
}
"""A job that goes well, a sample each minute for two hours."""
CAUSES = {
    "GreteCoordinatorDown": {"up": "1x90 0x30"},
    "GreteNotLeading": {"grete_is_leader": "1x90 0x30"},
    "GreteLeaseRenewalsFail": {"grete_lease_renewal_failures_total": "0x90 1+1x30"},
    "GreteContainerMissing": {"grete_needed_containers": "0x90 1x30"},
    "GreteJobUnhealthy": {"grete_job_healthy": "1x90 0x30"},
    "GreteContainerSilent": {"grete_heartbeat_age_seconds": "1x90 1+60x30"},
    "GreteContainerFailsAgainAndAgain": {"grete_container_restarts_total": "0x90 1+1x30"},
    "GreteLagGrows": {"grete_lag_messages": "900+100x120"},
    "GreteLagUnknown": {"grete_lag_messages": "800x90 stale"},
    "GreteNothingIsCommitted": {"grete_commit_calls_total": "50x120"},
    "GreteDeadLetters": {"grete_dead_letters_total": "7x110 8x10"},
    "GreteContainerWasFenced": {"grete_container_exits": "0x108 1x12"},
    "GreteDiskNearlyFull": {"grete_disk_free_bytes": "40x90 9x30"},
    "GreteCertificateEnds": {"grete_http_certificate_seconds": "606000-60x120"},
    "GreteRebalancesAgainAndAgain": {"grete_barriers_started_total": "1x90 2+1x30"},
    "GreteContainerWasCutOff": {"grete_barriers_timed_out_total": "0x100 1x20"},
    "GreteUnknownRecords": {"grete_quarantined_records": "0x90 2x30"},
    "GreteCannotLook": {"grete_monitor_problem": "0x90 1x30"},
    "GreteOffsetsSkipped": {f'grete_history_events{{{AT}, event="offsets-skipped"}}': "_x100 1x20"},
}


def series(changes: dict[str, str]) -> list[dict[str, str]]:
    """The calm job, but for these metrics, by their names alone."""
    found = dict(CALM)
    for name, values in changes.items():
        known = next((one for one in found if one.partition("{")[0] == name), name)
        found[known] = values
    return [{"series": name, "values": values} for name, values in found.items()]


def said_by_promtool(folder: Path, changes: dict[str, str], fires: str) -> str:
    """What is not as expected after two hours: that this alert fires, and no other; nothing where all is."""
    expected = [
        {
            "expr": f'count(ALERTS{{alertname="{one.name}", alertstate="firing"}}) or vector(0)',
            "eval_time": "115m",
            "exp_samples": [{"labels": "{}", "value": int(one.name == fires)}],
        }
        for one in alerts()
    ]
    test = {"interval": "1m", "input_series": series(changes), "promql_expr_test": expected}
    file = folder / "tests.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run([PROGRAMS / "promtool", "test", "rules", file], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_each_alert_fires_at_its_cause_and_none_at_a_job_that_goes_well(tmp_path: Path) -> None:
    assert set(CAUSES) == {one.name for one in alerts()}
    (tmp_path / "rules.yml").write_text(rules())
    checked = subprocess.run(
        [PROGRAMS / "promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True
    )
    assert checked.returncode == 0, checked.stderr
    said = {name: said_by_promtool(tmp_path, changes, name) for name, changes in {"": {}, **CAUSES}.items()}
    assert not {name: text for name, text in said.items() if text}
    assert said_by_promtool(tmp_path, CAUSES["GreteDeadLetters"], ""), "what is not expected fails"


@pytest.fixture
def job(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A job that runs, which other machines reach over TLS, and the port of its coordinator."""
    [port] = free_ports(1)
    public = {"job.http.host": "0.0.0.0", "job.http.names": "localhost", "job.http.port": str(port)}  # noqa: S104
    with OtlpReceiver() as receiver:
        traced = {"job.traces.endpoint": receiver.endpoint}
        with running_visits(home, "a visit", **public, **traced) as running:
            yield running, port


@pytest.fixture
def prometheus(job: tuple[subprocess.Popen[bytes], int], tmp_path: Path) -> Iterator[str]:
    with running_prometheus(tmp_path) as address:
        yield address


def test_what_happens_to_a_real_job_fires_the_alerts_that_say_so(
    job: tuple[subprocess.Popen[bytes], int], prometheus: str, home: Path
) -> None:
    eventually(lambda: scraped(prometheus, "grete_job_healthy") == ["1"], "it is scraped")
    [left_s] = scraped(prometheus, "grete_http_certificate_seconds")
    assert 3640 < float(left_s) / 86400 < 3651
    eventually(lambda: scraped(prometheus, "grete_dead_letters_total") == ["0"], "its containers are scraped")
    assert firing(prometheus) == set()
    span = "start=2020-01-01T00:00:00Z&end=2040-01-01T00:00:00Z"
    [series] = asked(prometheus, f"query_exemplars?query=grete_commit_seconds_total&{span}")
    assert re.fullmatch("[0-9a-f]{32}", series["exemplars"][0]["labels"]["trace_id"])
    append(home, "odd")
    eventually(lambda: firing(prometheus) == {"GreteDeadLetters"}, "a message was set aside")
    files = CertificateFiles.of(home / "jobs" / "visits-1")
    now = datetime.now(UTC)
    secret, certificate = _self_signed(("localhost",), now - timedelta(days=1), now + timedelta(days=3))
    files.key.write_bytes(secret)
    files.certificate.write_bytes(certificate)
    eventually(lambda: "GreteCertificateEnds" in firing(prometheus), "the certificate ends in three days")
    job[0].kill()
    eventually(lambda: "GreteCoordinatorDown" in firing(prometheus), "the coordinator is gone")
