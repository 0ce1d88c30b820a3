"""`grete doctor`: what this machine or a job's configuration lacks, each with the way out."""

from __future__ import annotations

import argparse
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

from grete.cli.options import add_job_options, given_settings, opened_job
from grete.cli.output import cell, print_json
from grete.errors import ConfigError
from grete.finding import Finding

if TYPE_CHECKING:
    from grete.config.settings import Settings


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of --config"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run every check; exit 1 when one fails."""
    if options.set and not options.config:
        raise ConfigError("--set goes with --config; `grete config set` changes a job's configuration")
    from grete.cli.doctor_checks import MACHINE, job_findings

    logging.getLogger("grete").addHandler(
        logging.NullHandler()
    )  # findings say what clients would say as well
    findings = [check() for check in MACHINE]
    if options.config or options.job:
        findings += _stream_findings(options)
        findings += job_findings(_settings(options))
    if options.output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return 0 if all(finding.ok for finding in findings) else 1


def _settings(options: argparse.Namespace) -> Settings:
    from grete.config.load import parse_overrides
    from grete.config.rewriters import apply_rewriters
    from grete.config.settings import Settings

    given = given_settings(options, parse_overrides(options.set))
    if given is not None:
        return Settings.of(apply_rewriters(given.raw))
    with opened_job(options) as handle:
        return handle.settings


def _stream_findings(options: argparse.Namespace) -> list[Finding]:
    """A job that has a coordinator stream: does it hold records that are not understood?"""
    if options.config:
        return []
    with opened_job(options) as handle:
        found = handle.quarantined()
        way_out = f"grete stream quarantine --job {handle.job.shown} --remove-all --execute"
    text = f"{len(found)} records are not understood"
    if found:
        text += f", the first at {found[0]}"
    return [Finding("coordinator stream", not found, text, way_out)]


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {cell(finding.found)}")
        if not finding.ok:
            print(f"      {cell(finding.way_out)}")
