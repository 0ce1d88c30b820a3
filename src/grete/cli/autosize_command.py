"""`grete autosize`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json, print_table
from grete.text_logs import utc_text


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    plan = actions.add_parser(
        "plan", help="what the job's rule would have done in the last hour, whether it is on or not"
    )
    add_job_options(plan)
    plan.set_defaults(run=_plan)


def _plan(options: argparse.Namespace) -> int:
    from grete.coordinator.autosizer import batch_rule_of, rule_of
    from grete.coordinator.batch_sizing import BatchSizer
    from grete.coordinator.figure_file import read_figures
    from grete.coordinator.sizing import Sizer

    with opened_job(options) as handle:
        shown, rule = handle.job.shown, rule_of(handle.settings, len(handle.active_tasks()))
        figures = read_figures(handle.state_directory)
        batch_rule, is_pipeline = batch_rule_of(handle.settings), handle.settings.job.is_pipeline
        limit = handle.settings.autosizing.batch_records
    sizer = Sizer(rule)
    found = [(one, sizing) for one in figures if (sizing := sizer.observe(one)) is not None]
    sizes = [
        {
            "at": utc_text(round(one.at_s * 1000)),
            "containers": one.containers,
            "wanted": to.containers,
            "why": to.why,
        }
        for one, to in found
    ]
    batch_sizer = BatchSizer(batch_rule)
    batches = [
        {"at": utc_text(round(one.at_s * 1000)), "records": limit, "wanted": to.records, "why": to.why}
        for one in (figures if is_pipeline else ())
        if (to := batch_sizer.observe(one, limit)) is not None
    ]
    if options.output == "json":
        print_json(
            {
                "job": shown,
                "figures": len(figures),
                "sizes": sizes,
                "batches": batches,
                "standing": sizer.standing,
            }
        )
        return 0
    if not figures:
        print(
            f"{shown}: nothing is recorded. The coordinator of a running job writes down how it does every ten "
            f"seconds, on the machine where it runs"
        )
        return 0
    if sizes:
        print_table(("at", f"{rule.unit}s", "wanted", "why"), [tuple(row.values()) for row in sizes])
    if batches:
        print_table(("at", "records a batch", "wanted", "why"), [tuple(row.values()) for row in batches])
    hours = f"{utc_text(round(figures[0].at_s * 1000))} to {utc_text(round(figures[-1].at_s * 1000))}"
    print(f"{shown}, {hours}: {len(sizes) + len(batches)} changes. In the end: {sizer.standing}")
    return 0
