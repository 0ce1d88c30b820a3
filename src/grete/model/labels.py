"""How Samza writes identifiers for people; some of these texts end up as keys."""

from __future__ import annotations

from grete.model.ids import SystemStreamPartition


def ssp_label(ssp: SystemStreamPartition) -> str:
    """Java's toString of an SSP: a task's name when every SSP has its own task, a label in checkpoints."""
    bucket = f", {ssp.key_bucket}" if ssp.key_bucket >= 0 else ""
    return f"SystemStreamPartition [{ssp.system}, {ssp.stream}, {ssp.partition}{bucket}]"
