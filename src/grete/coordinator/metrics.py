"""The metrics of a running job. Those that Samza has keep Samza's name; docs/observing.md lists all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from grete.checkpoint.lag import JobLag
from grete.coordinator.metadata_manager import GROUP, MetadataMetrics
from grete.coordinator.monitors.watch import Monitors
from grete.coordinator.progress import ContainerProgress
from grete.coordinator.renewal import RenewalFigures
from grete.coordinator.state import Barriers, State
from grete.coordinator.task_metrics import reported_metrics
from grete.model.ids import JobId
from grete.wire.prometheus_text import Family

_FENCED = "fenced"
"""Counted as 0 while there was none: from nothing to one is no increase to Prometheus."""
_METADATA_HELP = {
    "applicationAttemptCount": "Attempts in this deployment that changed neither job model nor autosizing.",
    "jobModelChanged": "Whether the job model changed with this attempt of a deployment.",
    "configChanged": "Whether the autosizing configuration changed with this attempt.",
    "newDeployment": "Whether this attempt is a new deployment.",
}


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """The facts behind the metrics. `progress` is by container; `events` are those of the history that is kept.

    `exits` are what the ends of containers in it mean; `disks` the bytes that are free and in all, by what is there.
    """

    job: JobId
    metadata: MetadataMetrics
    epoch: int
    state: State | None
    container_count: int
    progress: Mapping[str, ContainerProgress]
    now_s: float
    lag: JobLag | None
    quarantined: int
    monitors: Monitors | None = None
    lease: RenewalFigures = field(default_factory=RenewalFigures)
    events: Iterable[str] = field(default=())
    exits: Iterable[str] = field(default=())
    disks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    processors: int = 0
    certificate_s: float | None = None
    """Until the certificate for other machines ends; None where there is none, or nobody can say."""


def job_metrics(facts: MetricFacts) -> Iterator[Family]:
    """Every family, in the order of the documentation; then what containers report."""
    yield from _metadata(facts.metadata)
    yield from _coordinator(facts)
    yield from _containers(facts)
    yield from _lag(facts.lag)
    yield from _monitors(facts.monitors)
    yield from reported_metrics(facts.job, facts.progress)


def in_few_series(families: Iterable[Family]) -> Iterator[Family]:
    """Without the samples of each partition and task: what is left does not grow with the job."""
    for family in families:
        samples = [
            one for one in family.samples if not one.labels.get("task") and "partition" not in one.labels
        ]
        yield Family(family.name, family.kind, family.help, samples)


def _metadata(metrics: MetadataMetrics) -> Iterator[Family]:
    for name, text in _METADATA_HELP.items():
        kind = "counter" if name == "applicationAttemptCount" else "gauge"
        yield _single(f"{GROUP.replace('-', '_')}_{name}", kind, text, getattr(metrics, name))


def _single(name: str, kind: str, text: str, value: int | float) -> Family:
    family = Family(name, kind, text)
    family.add(value)
    return family


def _coordinator(facts: MetricFacts) -> Iterator[Family]:
    containers = list(facts.state.containers.values()) if facts.state is not None else []
    running = sum(c.running for c in containers)
    ended = sum(c.done for c in containers)
    given_up = sum(c.given_up for c in containers)
    needed = max(0, facts.container_count - running - ended - given_up)
    failures = sum(c.failures.count for c in containers)
    gauge = "gauge"
    yield _single("grete_leader_epoch", gauge, "Epoch of this coordinator's leadership.", facts.epoch)
    lease, counter = facts.lease, "counter"
    yield _single("grete_is_leader", gauge, "1 while the leadership holds.", int(lease.left_s > 0))
    yield _single("grete_lease_seconds", gauge, "Seconds it holds without a renewal.", round(lease.left_s, 3))
    yield _single("grete_lease_renewals_total", counter, "Renewals of the leadership.", lease.renewals)
    yield _single(
        "grete_lease_renewal_failures_total",
        counter,
        "Renewals that failed, or had no answer.",
        lease.failures,
    )
    yield from _barriers(Barriers() if facts.state is None else facts.state.barriers)
    yield _single(
        "grete_live_processors", gauge, "Stream processors that can run a container.", facts.processors
    )
    yield _single("grete_container_count", gauge, "Containers in the job model.", facts.container_count)
    yield _single("grete_running_containers", gauge, "Containers that run.", running)
    yield _single("grete_needed_containers", gauge, "Containers that should run and do not.", needed)
    yield _single("grete_completed_containers", gauge, "Containers that ended as they should.", ended)
    yield _single(
        "grete_failed_containers",
        gauge,
        "Failures since a container last ran for the window.",
        failures,
    )
    healthy = int(needed == 0 and given_up == 0)
    yield _single("grete_job_healthy", gauge, "1 when no container is missing or given up.", healthy)
    yield _single("grete_quarantined_records", gauge, "Records not understood.", facts.quarantined)
    events = Family("grete_history_events", gauge, "Rows of the history that is kept, by event.")
    for event, count in sorted(Counter(facts.events).items()):
        events.add(count, event=event)
    yield events
    exits = Family(
        "grete_container_exits", gauge, "Ends of containers in the history that is kept, by meaning."
    )
    for meaning, count in sorted(Counter({_FENCED: 0} | Counter(facts.exits)).items()):
        exits.add(count, meaning=meaning)
    yield exits
    free = Family("grete_disk_free_bytes", gauge, "Bytes that are free on the disk of a folder of the job.")
    size = Family("grete_disk_size_bytes", gauge, "Bytes of that disk.")
    for folder, (free_bytes, size_bytes) in sorted(facts.disks.items()):
        free.add(free_bytes, folder=folder)
        size.add(size_bytes, folder=folder)
    yield from (free, size)
    certificate = Family(
        "grete_http_certificate_seconds", gauge, "Seconds until the certificate for other machines ends."
    )
    if facts.certificate_s is not None:
        certificate.add(facts.certificate_s)
    yield certificate


def _barriers(barriers: Barriers) -> Iterator[Family]:
    counter = "counter"
    yield _single(
        "grete_barriers_started_total", counter, "Changes of the job model that began.", barriers.started
    )
    yield _single("grete_barriers_ended_total", counter, "Those whose model was granted.", barriers.ended)
    yield _single(
        "grete_barriers_timed_out_total",
        counter,
        "Those whose deadline cut a container off.",
        barriers.timed_out,
    )
    yield _single(
        "grete_rebalance_seconds",
        "gauge",
        "Seconds that the last change took, until all containers ran it.",
        round(barriers.last_s, 3),
    )


def _containers(facts: MetricFacts) -> Iterator[Family]:
    processed = Family(
        "grete_process_envelopes_total", "counter", "Messages processed since the container started."
    )
    rate = Family("grete_process_envelopes_per_second", "gauge", "Messages a second over the last minute.")
    batch = Family("grete_batch_id", "gauge", "Last batch of the streaming query that was committed.")
    commits = Family("grete_commit_calls_total", "counter", "Batches committed since the container started.")
    dead = Family("grete_dead_letters_total", "counter", "Messages set aside since the container started.")
    seconds = Family("grete_commit_seconds_total", "counter", "Seconds that these commits took.")
    cpu = Family(
        "grete_cpu_seconds_total", "counter", "Seconds of a processor that shares of StreamTasks computed."
    )
    last = Family("grete_last_commit_seconds", "gauge", "Seconds that the last commit took.")
    restarts = Family("grete_container_restarts_total", "counter", "Incarnations before the present one.")
    age = Family("grete_heartbeat_age_seconds", "gauge", "Seconds since the container's last heartbeat.")
    for container, one in sorted(facts.progress.items()):
        said = one.heartbeat
        processed.add(said.records, container=container)
        rate.add(round(one.records_per_s, 3), container=container)
        batch.add(said.batch_id, container=container)
        commits.add(said.commits, container=container)
        dead.add(said.dead_letters, container=container)
        seconds.add(round(said.commit_seconds, 6), container=container)
        if said.trace:
            seconds.exemplify(said.trace, round(said.last_commit_seconds, 6))
        cpu.add(round(said.cpu_seconds, 6), container=container)
        last.add(round(said.last_commit_seconds, 6), container=container)
        restarts.add(one.restarts, container=container)
        age.add(round(max(0.0, facts.now_s - one.at_s), 3), container=container)
    return iter((processed, rate, batch, commits, dead, seconds, cpu, last, restarts, age))


def _lag(lag: JobLag | None) -> Iterator[Family]:
    behind = Family(
        "grete_messages_behind_high_watermark",
        "gauge",
        "Messages of an SSP that a task has not processed yet.",
    )
    offsets = Family(
        "grete_checkpointed_offset", "gauge", "Last processed offset, where offsets are numbers."
    )
    for row in lag.rows if lag is not None else ():
        ssp = {"system": row.ssp.system, "stream": row.ssp.stream, "partition": str(row.ssp.partition)}
        labels = {"task": row.task or "", **ssp}
        if row.records is not None:
            behind.add(row.records, **labels)
            if row.checkpointed is not None:
                offsets.add(int(row.checkpointed), **labels)
    total = Family(
        "grete_lag_messages", "gauge", "Messages of all inputs not processed yet; absent when unknown."
    )
    if lag is not None and lag.total is not None:
        total.add(lag.total)
    return iter((behind, offsets, total))


def _monitors(monitors: Monitors | None) -> Iterator[Family]:
    counts = Family("grete_partition_count", "gauge", "Partitions of an input stream, as last observed.")
    new = Family(
        "grete_new_input_streams", "gauge", "Streams that an input regex matches and that are no inputs."
    )
    problems = Family("grete_monitor_problem", "gauge", "1 for a monitor that cannot look.")
    if monitors is not None:
        for stream, partitions in sorted(monitors.partitions.counts.items()):
            counts.add(partitions, system=stream.system, stream=stream.stream)
        for system, streams in sorted(monitors.inputs.new_streams.items()):
            new.add(streams, system=system)
        for monitor in sorted(monitors.problems):
            problems.add(1, monitor=monitor)
    return iter((counts, new, problems))
