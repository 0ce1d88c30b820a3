"""What a configuration says of transactions on systems that have them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from grete.config.key_tables.task import COMMIT_GROUPS, TRANSACTION_TIMEOUT
from grete.config.numbers import at_least_one, number_of

_GROUPS_OF_A_CLUSTER = 4
"""Where the configuration leaves it to the cluster how many cores a container gets."""


def commit_groups(config: Mapping[str, str]) -> int:
    """How many transactions commit a container's batch at most: as many as it has cores, unless the key says it.

    Raises:
        ConfigError: not a number of one or more.
    """
    if (given := config.get(COMMIT_GROUPS.name)) is not None:
        return at_least_one(COMMIT_GROUPS.name, given)
    if (local := local_cores(config.get("spark.master", "local[*]"))) is not None:
        return local
    if (cores := config.get("spark.cores.max", "")).isdecimal():
        return max(1, int(cores))
    each, executors = config.get("spark.executor.cores", ""), config.get("spark.executor.instances", "")
    if each.isdecimal() and executors.isdecimal():
        return max(1, int(each) * int(executors))
    return _GROUPS_OF_A_CLUSTER


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at once; None for one whose tasks run in processes of their own."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else max(1, int(found[1] or "1"))


def transaction_timeout_s(config: Mapping[str, str]) -> float:
    """How long a transaction may take before the brokers abort it.

    Raises:
        ConfigError: not a number of one or more.
    """
    return number_of(config, TRANSACTION_TIMEOUT) / 1000
