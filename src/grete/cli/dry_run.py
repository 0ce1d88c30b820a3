"""How `grete run --dry-run` shows what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grete.cli.output import print_json, print_table
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.assembly.dry_run import Planned
    from grete.assembly.submission import RunOptions

_WIDTH, _WIDEST = 140, 40


def show_dry_run(options: RunOptions, output: str) -> int:
    """Work it out and print it; 0 when the job could be submitted as it is."""
    from grete.assembly.dry_run import dry_run

    planned = dry_run(options)
    if output == "json":
        print_json(_document(planned))
    else:
        _print(planned)
    return 0


def _document(planned: Planned) -> dict[str, Any]:
    return {
        "job": planned.job.shown,
        "application": planned.application,
        "inputs": dict(planned.inputs),
        "outputs": dict(planned.outputs),
        "containers": planned.containers,
        "tasks": planned.tasks,
        "output_mode": planned.output_mode or None,
        "settings": {
            key: {"value": value, "reason": reason} for key, (value, reason) in planned.settings.items()
        },
        "plan": None if planned.plan is None else dict(planned.plan),
    }


def _shown(kind: int | str) -> int | str:
    """The partitions of an output, or what it is instead."""
    if kind == 0:
        return "to be created"
    return kind or "write_batch"


def _shortened(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[:_WIDEST]}..."


def _print(planned: Planned) -> None:
    print(printable(f"{planned.job.shown} runs {planned.application}; nothing was started or written"))
    rows: list[tuple[str, str, object]] = [("input", name, count) for name, count in planned.inputs.items()]
    rows += [("output", name, _shown(kind)) for name, kind in planned.outputs.items()]
    print_table(("", "name", "partitions"), rows)
    print(f"containers {planned.containers}, tasks {planned.tasks}")
    if planned.settings:
        print("\nsettings of Spark that nobody has asked for, and that plain Spark has otherwise")
        rows = [(key, _shortened(value), reason) for key, (value, reason) in planned.settings.items()]
        print_table(("key", "value", "reason"), rows)
    for name, plan in (planned.plan or {}).items():
        print(f"\n{printable(name)}, output mode {planned.output_mode}")
        for line in plan.splitlines():
            print(printable(line if len(line) <= _WIDTH else f"{line[:_WIDTH]}..."))
