"""What a container's end means, from the code of its process and from its exit report."""

from __future__ import annotations

import signal

from grete.launch.base import ContainerExit, ContainerStart
from grete.model.ending import ContainerEnd, ExitCode


def exit_of(
    start: ContainerStart, code: int, report: ContainerEnd | None, *, said: str = ""
) -> ContainerExit:
    """The exit with that code, negative for a signal; `said` is what is known of one that left no report."""
    id_, epoch = start.container_id, start.epoch
    own = report if report == code else None
    if own is not None and own.failure is not None:
        return ContainerExit(id_, epoch, code, str(own.failure), own.failure.place)
    if own is None and code in (ExitCode.OK, ExitCode.STOPPED):
        # as `os._exit(0)` of a function, or a library's exit: a job was called done that had read nothing
        return ContainerExit(id_, epoch, ExitCode.FAILED, _ended_by_others(code))
    known = _without_report(code)
    return ContainerExit(id_, epoch, code, "; ".join(filter(None, (known, said))))


def _ended_by_others(code: int) -> str:
    """Why an end that looks like one in order is none."""
    return (
        f"its process ended with code {code}, and not by the container, which writes what it ends with: "
        "the application or a library of its called exit; its log may say which"
    )


def _without_report(code: int) -> str:
    """Why a container has ended that did not say it."""
    if code < 0:
        return f"killed by signal {-code} ({_signal_name(-code)})"
    if code in (ExitCode.OK, ExitCode.STOPPED):
        return ""
    return "it could not say why; its log may"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "no name"
