"""`grete deploy plan|apply|status|kill|chart`."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.options import add_common_options, add_config_option, argument
from grete.cli.output import print_json, print_table
from grete.errors import ConfigError
from grete.text_logs import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from grete.assembly.submission import RunOptions
    from grete.deploy.base import ClusterManager, Deployed
    from grete.deploy.deployment import Deployment


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    helps: dict[str, tuple[str, Callable[[argparse.Namespace], int]]] = {
        "plan": ("show what `apply` would send to the cluster manager; nothing is sent", _plan),
        "apply": ("let the cluster manager run the job", _apply),
        "status": ("what the cluster manager says of the job, and its attempts", _status),
        "kill": ("let the cluster manager end it at once; `grete stop` ends it in order", _kill),
        "chart": ("write what `apply` would send to Kubernetes as a Helm chart", _chart),
    }
    for name, (text, run) in helps.items():
        sub = actions.add_parser(name, help=text)
        add_config_option(sub, required=True)
        add_common_options(sub)
        sub.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
        sub.set_defaults(run=run)
        if name in ("plan", "apply", "chart"):
            sub.add_argument(
                "--until-drained", action="store_true", help="end when what is there is consumed"
            )
            sub.add_argument("--reason", default="", help="recorded in the history")
        if name == "plan":
            sub.add_argument(
                "--check", action="store_true", help="let the API server of Kubernetes look at it, strictly"
            )
        if name == "chart":
            sub.add_argument("folder", type=argument(Path), help="where it is written")
            sub.add_argument("--chart-version", default="0.1.0", metavar="X.Y.Z", help="of the chart (0.1.0)")
        if name == "status":
            sub.add_argument(
                "--file-sd",
                action="store_true",
                help="where Prometheus finds the coordinator, for a file of `file_sd_configs`",
            )
        if name == "apply":
            sub.add_argument("--replace", action="store_true", help="end a deployment of this job that runs")


def _run_options(options: argparse.Namespace) -> RunOptions:
    from grete.assembly.submission import RunOptions
    from grete.config.load import parse_overrides

    return RunOptions(
        config_paths=options.config,
        overrides=parse_overrides(options.set),
        until_drained=getattr(options, "until_drained", False),
        reason=getattr(options, "reason", ""),
    )


def _opened(options: argparse.Namespace) -> tuple[Deployment, ClusterManager | None]:
    """The deployment, and its manager; None where coordinator and container run here."""
    from grete.deploy.deployment import prepare
    from grete.deploy.managers import find_manager
    from grete.environment import grete_home

    deployment = prepare(_run_options(options), grete_home())
    return deployment, find_manager(deployment.settings)


def _plan(options: argparse.Namespace) -> int:
    deployment, manager = _opened(options)
    if manager is None:
        command = shlex.join(_command_here(options))
        return _print(
            options,
            {"manager": "standalone", "command": _command_here(options)},
            f"# client mode: coordinator and container run here, executors on {deployment.settings.deploy.master}\n"
            + command,
        )
    plan = manager.plan(deployment)
    if options.check:
        manager.check(deployment)
    return _print(options, plan.document, plan.text)


def _print(options: argparse.Namespace, document: object, text: str) -> int:
    if options.output == "json":
        print_json(document)
    else:
        print(text)
    return 0


def _command_here(options: argparse.Namespace) -> list[str]:
    named = [word for path in options.config for word in ("--config", path)]
    overrides = [word for one in options.set for word in ("--set", one)]
    return ["grete", "run", *named, *overrides, *(["--until-drained"] if options.until_drained else [])]


def _apply(options: argparse.Namespace) -> int:
    deployment, manager = _opened(options)
    if manager is None:
        from grete.assembly import run_job

        return run_job(_run_options(options))
    applied = manager.apply(deployment, replace=options.replace)
    text = (
        f"job {deployment.job.shown}: {applied.id} ({applied.state}); `grete deploy status` says what becomes of it, "
        "`grete status` how far the job is"
    )
    return _print(options, {"job": deployment.job.shown, **_document(applied)}, text)


def _on_a_manager(options: argparse.Namespace) -> tuple[Deployment, ClusterManager]:
    deployment, manager = _opened(options)
    if manager is None:
        raise ConfigError(
            f"spark.master={deployment.settings.deploy.master}: coordinator and container are processes of the "
            "machine that runs them, which no cluster manager knows; use grete status and grete stop"
        )
    return deployment, manager


def _status(options: argparse.Namespace) -> int:
    deployment, manager = _on_a_manager(options)
    found = manager.status(deployment)
    if options.file_sd:
        from grete.monitoring.scraping import file_sd

        hosts = [one.attempts[-1].host for one in found if one.is_live and one.attempts]
        print(file_sd(deployment.job, deployment.settings.coordinator, [host for host in hosts if host]))
        return 0
    if options.output == "json":
        print_json([_document(one) for one in found])
        return 0
    if not found:
        print(f"job {deployment.job.shown} is not deployed")
        return 0
    rows = [
        [one.id, one.state, attempt.number, attempt.where, attempt.state, utc_text(attempt.since_ms)]
        for one in found
        for attempt in one.attempts
    ]
    print_table(("deployment", "state", "attempt", "where", "attempt's state", "since"), rows)
    if shown := [
        [each.container, each.where, each.state, utc_text(each.since_ms), each.logs]
        for one in found
        for each in one.containers
    ]:
        print_table(("container", "where", "state", "since", "logs"), shown)
    for one in found[:1]:
        print(
            *([one.detail] if one.detail else []),
            *(f"logs: {last.logs}" for last in one.attempts[-1:]),
            sep="\n",
        )
    return 0


def _kill(options: argparse.Namespace) -> int:
    deployment, manager = _on_a_manager(options)
    ended = manager.kill(deployment)
    words = f"ended {', '.join(ended)}" if ended else "nothing of it runs"
    return _print(options, {"ended": ended}, f"job {deployment.job.shown}: {words}")


def _chart(options: argparse.Namespace) -> int:
    from grete.deploy.chart import IMAGE, write_chart
    from grete.deploy.kubernetes import Kubernetes

    deployment, manager = _on_a_manager(options)
    if not isinstance(manager, Kubernetes):
        raise ConfigError(
            f"spark.master={deployment.settings.deploy.master}: Helm is for Kubernetes; `grete deploy apply` "
            "deploys the job there"
        )
    image = deployment.settings.spark.image or ""
    options.set = [*options.set, f"spark.kubernetes.container.image={IMAGE}"]
    charted, _ = _opened(options)
    files = write_chart(charted, image, options.folder, options.chart_version)
    text = "\n".join(map(str, files))
    return _print(options, {"files": [str(file) for file in files]}, text)


def _document(one: Deployed) -> dict[str, object]:
    return {
        "id": one.id,
        "state": one.state,
        "live": one.is_live,
        "since_ms": one.since_ms,
        "detail": one.detail,
        "attempts": [
            {
                "number": each.number,
                "where": each.where,
                "state": each.state,
                "since_ms": each.since_ms,
                "logs": each.logs,
            }
            for each in one.attempts
        ],
        "containers": [asdict(each) for each in one.containers],
    }
