"""Alerts on a job's metrics, each with a section of docs/runbook.md that says what to look at and what to do.

The names of metrics are those of `grete.coordinator.metrics`; a test sees that there are no others.
"""

from __future__ import annotations

from typing import NamedTuple

import yaml

RUNBOOK = "docs/runbook.md"
PAGE, TICKET = "page", "ticket"
"""Severities: somebody is woken, or looks tomorrow."""


class Alert(NamedTuple):
    """A rule: `expression` has held for the time before the alert fires."""

    name: str
    expression: str
    held: str
    severity: str
    summary: str

    @property
    def anchor(self) -> str:
        """The section of the runbook."""
        return self.name.lower()


def alerts(scrape_job: str = "grete") -> list[Alert]:
    """Every alert; `scrape_job` begins the `job_name`s under which Prometheus scrapes coordinators."""
    return [
        Alert(
            "GreteCoordinatorDown",
            f'up{{job=~"{scrape_job}(-.+)?"}} == 0',
            "2m",
            PAGE,
            "The coordinator does not answer: nobody restarts containers or follows changes.",
        ),
        Alert(
            "GreteNotLeading",
            "grete_is_leader == 0",
            "1m",
            PAGE,
            "The coordinator that answers does not lead: its lease has run out, or was taken.",
        ),
        Alert(
            "GreteLeaseRenewalsFail",
            "increase(grete_lease_renewal_failures_total[10m]) > 3",
            "0m",
            TICKET,
            "The store of the election is slow or away: the leadership is about to be lost.",
        ),
        Alert(
            "GreteContainerMissing",
            "grete_needed_containers > 0",
            "5m",
            PAGE,
            "Containers that should run do not.",
        ),
        Alert(
            "GreteJobUnhealthy",
            "grete_job_healthy == 0",
            "5m",
            PAGE,
            "A container is missing, or was given up: its partitions are not processed.",
        ),
        Alert(
            "GreteContainerSilent",
            "grete_heartbeat_age_seconds > 60",
            "1m",
            PAGE,
            "A container has not been heard of for a minute: it hangs, or is cut off.",
        ),
        Alert(
            "GreteContainerFailsAgainAndAgain",
            "increase(grete_container_restarts_total[1h]) > 3",
            "0m",
            TICKET,
            "A container was started again more than three times within an hour.",
        ),
        Alert(
            "GreteLagGrows",
            "delta(grete_lag_messages[15m]) > 0 and grete_lag_messages > 1000",
            "15m",
            TICKET,
            "More records come than are processed.",
        ),
        Alert(
            "GreteLagUnknown",
            "grete_leader_epoch unless grete_lag_messages",
            "10m",
            TICKET,
            "How far the job is behind cannot be told: an input is gone, or its brokers do not answer.",
        ),
        Alert(
            "GreteNothingIsCommitted",
            "grete_lag_messages > 0 and on (job, instance) "
            "(sum by (job, instance) (increase(grete_commit_calls_total[10m])) == 0)",
            "5m",
            PAGE,
            "Records wait, and nothing was committed for a quarter of an hour.",
        ),
        Alert(
            "GreteDeadLetters",
            "increase(grete_dead_letters_total[15m]) > 0",
            "0m",
            TICKET,
            "Messages could not be processed and were set aside.",
        ),
        Alert(
            "GreteContainerWasFenced",
            'delta(grete_container_exits{meaning="fenced"}[15m]) > 0',
            "0m",
            TICKET,
            "A container found that another one has its tasks, and ended without writing.",
        ),
        Alert(
            "GreteDiskNearlyFull",
            "grete_disk_free_bytes / grete_disk_size_bytes < 0.1",
            "10m",
            PAGE,
            "The disk with the job's stores and logs has less than a tenth left.",
        ),
        Alert(
            "GreteCertificateEnds",
            "grete_http_certificate_seconds < 7 * 86400",
            "10m",
            TICKET,
            "The certificate by which other machines reach the job ends within a week.",
        ),
        Alert(
            "GreteRebalancesAgainAndAgain",
            "increase(grete_barriers_started_total[1h]) > 6",
            "0m",
            TICKET,
            "The job model has changed more than six times within an hour: tasks pause each time.",
        ),
        Alert(
            "GreteContainerWasCutOff",
            "increase(grete_barriers_timed_out_total[1h]) > 0",
            "0m",
            TICKET,
            "A container did not let go of its tasks in time and was fenced off.",
        ),
        Alert(
            "GreteUnknownRecords",
            "grete_quarantined_records > 0",
            "5m",
            TICKET,
            "The coordinator stream has records that are not understood.",
        ),
        Alert(
            "GreteCannotLook",
            "grete_monitor_problem == 1",
            "10m",
            TICKET,
            "The coordinator cannot look at inputs or containers.",
        ),
        Alert(
            "GreteOffsetsSkipped",
            'grete_history_events{event="offsets-skipped"} > 0',
            "0m",
            TICKET,
            "Records were gone before they were processed, and the job went on after them.",
        ),
    ]


def rules(scrape_job: str = "grete") -> str:
    """The alerts as a file of rules for Prometheus."""
    found = [
        {
            "alert": one.name,
            "expr": one.expression,
            "for": one.held,
            "labels": {"severity": one.severity},
            "annotations": {
                "summary": one.summary,
                "job": "{{ $labels.job }} at {{ $labels.instance }}",
                "runbook": f"{RUNBOOK}#{one.anchor}",
            },
        }
        for one in alerts(scrape_job)
    ]
    return yaml.safe_dump({"groups": [{"name": "grete", "rules": found}]}, sort_keys=False, width=1_000)
