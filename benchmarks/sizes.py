"""What the rule of autosizing does over made-up days, as pictures for docs: `python -m benchmarks.sizes`.

It needs no machine to be quiet: the job is a model of its queues (`grete_workbench.sized_job`), the rule is the
product's. A container does 1,000 records a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.plot import Plot
from grete_workbench.sized_job import DAY_S, HOUR_S, OF_ONE, SizedJob, wave

DIAGRAMS = Path(__file__).parent.parent / "docs" / "diagrams"
_EVERY = 12
"""Steps of ten seconds of which one is drawn."""
DAYS: Mapping[str, tuple[str, SizedJob, float]] = {
    "day": ("A day with a wave", SizedJob(wave), DAY_S),
    "spike": (
        "Ten minutes of ten times as much",
        SizedJob(lambda at_s: 6_000.0 if HOUR_S <= at_s < HOUR_S + 600 else 600.0),
        3 * HOUR_S,
    ),
    "slow-output": (
        "An output that takes 900 records a second, of 1,500",
        SizedJob(lambda at_s: 1_500.0, sink=900.0, containers=2),
        7 * HOUR_S,
    ),
}


def main() -> None:
    """Draw them, and print what each costs."""
    for name, (title, job, seconds) in DAYS.items():
        trace = job.run(seconds).trace[::_EVERY]
        series = {
            "arrives": [(at_s / HOUR_S, per_s) for at_s, per_s, _, _ in trace],
            "can be processed": [(at_s / HOUR_S, containers * OF_ONE) for at_s, _, _, containers in trace],
        }
        plot = Plot(f"{title}: records a second", "hours", "", series, begins_at_0=True)
        (DIAGRAMS / f"autosizing-{name}.svg").write_text(plot.svg())
        peak = max(one[3] for one in job.trace)
        worst_s = max(one[2] for one in job.trace)
        print(
            f"{name}: {len(job.changes)} changes, {peak} containers at most and "
            f"{job.container_s / seconds:.1f} on average; {worst_s:.0f} s behind at most, "
            f"{job.late_s:.0f} s too far behind"
        )


if __name__ == "__main__":
    main()
