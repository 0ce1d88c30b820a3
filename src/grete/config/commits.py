"""What a configuration says of transactions on systems that have them."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.key_tables.task import COMMIT_GROUPS, TRANSACTION_TIMEOUT
from grete.config.numbers import number_of


def commit_groups(config: Mapping[str, str]) -> int:
    """How many transactions commit a container's batch.

    Raises:
        ConfigError: not a number of one or more.
    """
    return number_of(config, COMMIT_GROUPS)


def transaction_timeout_s(config: Mapping[str, str]) -> float:
    """How long a transaction may take before the brokers abort it.

    Raises:
        ConfigError: not a number of one or more.
    """
    return number_of(config, TRANSACTION_TIMEOUT) / 1000
