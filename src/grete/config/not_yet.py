"""Settings that are understood but whose work is not built: refused, rather than silently without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config import aliases


def not_yet(config: Mapping[str, str]) -> Iterator[str]:
    """What the configuration asks for and this version cannot do, each with the way out."""
    replicas = config.get("job.standbytasks.replication.factor", "1")
    if replicas.isdigit() and int(replicas) > 1:
        yield (
            f"job.standbytasks.replication.factor={replicas}: standby tasks are not available in this version; "
            f"set it to 1"
        )
    checkpoints = config.get("task.checkpoint.factory")
    if (
        checkpoints is not None
        and aliases.canonical(aliases.CHECKPOINTS, checkpoints) != "grete.checkpoint.log"
    ):
        yield (
            f"task.checkpoint.factory={checkpoints!r}: only the checkpoint log of the job's own system is available "
            f"in this version, because outputs and checkpoints commit in one transaction there; remove the key"
        )
    if _launcher(config) == "thread" and config.get("job.container.count", "1").strip() != "1":
        yield (
            "job.launcher=thread runs one container only, since one process has one Spark; set job.launcher=process "
            "to run all of them"
        )


def _launcher(config: Mapping[str, str]) -> str:
    named = config.get("job.launcher")
    return (
        named
        if named is not None
        else aliases.canonical(aliases.LAUNCHERS, config.get("job.factory.class", ""))
    )
